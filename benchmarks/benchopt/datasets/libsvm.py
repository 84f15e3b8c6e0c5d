"""The paper's data sets, where ``desopt.data.load`` finds their files."""

from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "libsvm"
    requirements = ["pip::desopt"]
    parameters = {"name": ["ijcnn1", "covtype", "mnist", "rcv1", "news20", "real-sim", "SUSY"]}

    def skip(self):
        from desopt.data import find

        try:
            find(self.name)
        except FileNotFoundError as error:
            return True, str(error)
        return False, None

    def get_data(self):
        from desopt.data import load, train_test

        train, test = train_test(load(self.name), seed=0)
        return {"X": train.X, "y": train.y, "X_test": test.X, "y_test": test.y}
