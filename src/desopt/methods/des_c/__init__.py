"""DES-C, distributed evolution strategies with corrected comparisons.

=============  =======================================================================
``method``     the rule: what a worker compares and sends, how x moves
``states``     what the server remembers
``learning``   the estimates of all slopes, while they learn from the answers of a round
``last_step``  the rule of ``step_size="auto"``
=============  =======================================================================
"""

from desopt.methods.des_c.method import CORRECTIONS, DESC, defaults
from desopt.methods.des_c.states import AdaptedDESCState, DESCState

__all__ = ["CORRECTIONS", "DESC", "AdaptedDESCState", "DESCState", "defaults"]
