"""What the server of ``des-c`` remembers and learns; the rule itself is in ``methods.des_c``.

=============  =======================================================================
``states``     what the server remembers
``learning``   the estimates of all slopes, while they learn from the answers of a round
``last_step``  the rule of ``step_size="auto"``
=============  =======================================================================
"""

from desopt.methods.correction.last_step import Following
from desopt.methods.correction.learning import Learning
from desopt.methods.correction.states import AdaptedDESCState, DESCState, estimates

__all__ = ["AdaptedDESCState", "DESCState", "Following", "Learning", "estimates"]
