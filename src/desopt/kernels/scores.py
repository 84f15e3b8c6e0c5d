"""Losses of labels and scores: with a weight for each row, for real labels, and of whole batches.

The losses of ``desopt.kernels.losses`` see the margin of a row, and all rows count alike. Here a
batch has labels y, weights w and scores s = z^T x. A loss of rows is sum_i w_i loss(y_i, s_i); F1
and AUC are functions of all scores of the batch. The order of every sum is fixed, as there.
"""

from __future__ import annotations

import math

import numpy as np

from desopt.kernels.jit import exact
from desopt.kernels.lanes import WIDTH, dot, load_some, magnitude, total, where, zeros
from desopt.kernels.layouts import fill_margins
from desopt.kernels.losses import (
    L2SVM,
    LR,
    LSVM,
    NSVM,
    hinge,
    logistic,
    one_minus_tanh,
    squared_hinge,
    sum_losses,
)

SQUARED, ABSOLUTE, HUBER, PINBALL, F1, AUC = 4, 5, 6, 7, 8, 9

#: Pairs of a row in an AUC. All rows have the same number: then few are nearly as good as all.
PAIRS = 4


@exact
def huber(r, delta):
    """r^2/2 up to |r| = delta, then linear: m (|r| - m/2) with m = min(|r|, delta)."""
    size = magnitude(r)
    least = where(size > delta, delta, size)
    return least * (size - 0.5 * least)


@exact
def pinball(r, quantile):
    """quantile r for r >= 0, (quantile - 1) r below."""
    return where(r < 0.0, (quantile - 1.0) * r, quantile * r)


@exact
def loss_of_rows(kind, parameter, y, s):
    """The losses of ``WIDTH`` labels and scores; of the margin y s, or of the residual y - s."""
    if kind == LR:
        return logistic(y * s)
    if kind == NSVM:
        return one_minus_tanh(y * s)
    if kind == LSVM:
        return hinge(y * s)
    if kind == L2SVM:
        return squared_hinge(y * s)
    r = y - s
    if kind == SQUARED:
        return 0.5 * r * r
    if kind == ABSOLUTE:
        return magnitude(r)
    if kind == HUBER:
        return huber(r, parameter)
    if kind == PINBALL:
        return pinball(r, parameter)
    return math.nan * s


@exact
def one_minus_f1(y, w, s):
    """1 - F1 of the expected counts, where a row is taken for positive with p = 1 / (1 + e^-2s).

    F1 = 2 TP / (positives + taken for positive); the larger the scores, the nearer to counts.
    """
    hits, taken, positives = zeros(), zeros(), zeros()
    for i in range(0, s.size, WIDTH):
        left = s.size - i
        label, weight = load_some(y, i, left, 0.0), load_some(w, i, left, 0.0)
        chance = weight * (1.0 - 0.5 * one_minus_tanh(load_some(s, i, left, 0.0)))
        taken = taken + chance
        hits = hits + where(label > 0.0, chance, 0.0)
        positives = positives + where(label > 0.0, weight, 0.0)
    return 1.0 - 2.0 * total(hits) / (total(positives) + total(taken))


@exact
def one_minus_auc(y, w, s):
    """1 - AUC of expected counts: the mean over pairs of 1 / (1 + e^2d), where d is the score of
    the positive row minus that of the negative one.

    Each row of the larger class meets ``PAIRS`` rows of the other, which have their turns evenly
    and in an order that has nothing to do with that of the rows. 1/2 where a class is missing.
    """
    positives, negatives = np.empty(s.size, np.int64), np.empty(s.size, np.int64)
    above, below = 0, 0
    for i in range(s.size):
        if y[i] > 0.0:
            positives[above] = i
            above += 1
        else:
            negatives[below] = i
            below += 1
    few, many = min(above, below), max(above, below)
    if few == 0:
        return 0.5
    stride = next_coprime(np.int64(0.618 * few), few)
    times = min(PAIRS, few)
    difference, weight = np.empty(many), np.empty(many)
    wrong, pairs = zeros(), zeros()
    for turn in range(times):
        partner = turn * (few // times)
        for t in range(many):
            i = positives[t if above == many else partner]
            j = negatives[partner if above == many else t]
            difference[t], weight[t] = s[i] - s[j], w[i] * w[j]
            partner += stride
            partner -= few if partner >= few else 0
        for t in range(0, many, WIDTH):
            chance = one_minus_tanh(load_some(difference, t, many - t, 0.0))
            of_pair = load_some(weight, t, many - t, 0.0)
            wrong = wrong + of_pair * chance
            pairs = pairs + of_pair
    return 0.5 * total(wrong) / total(pairs)


@exact
def next_coprime(least, size):
    """The first number from ``least`` on without a common factor with ``size``, modulo size."""
    while True:
        a, b = least, size
        while b:
            a, b = b, a % b
        if a == 1:
            return least % size
        least += 1


@exact
def sum_scored(kind, parameter, y, w, s):
    """sum_i w_i loss(y_i, s_i); for F1 and AUC, their loss times the number of rows."""
    if kind == F1:
        return s.size * one_minus_f1(y, w, s)
    if kind == AUC:
        return s.size * one_minus_auc(y, w, s)
    lanes = zeros()
    for i in range(0, s.size, WIDTH):  # lanes that are left over have no weight
        left = s.size - i
        loss = loss_of_rows(kind, parameter, load_some(y, i, left, 0.0), load_some(s, i, left, 0.0))
        lanes = lanes + load_some(w, i, left, 0.0) * loss
    return total(lanes)


@exact
def sum_batch(kind, margin, scored=None):
    """The losses of a batch; ``scored`` is None, or (parameter, y, w) where margins are scores."""
    if scored is None:
        return sum_losses(kind, margin)
    parameter, y, w = scored
    return sum_scored(kind, parameter, y, w, margin)


@exact
def scored_value(layout, rows, ones, x, kind, penalty, scored):
    """The objective on these rows, whose labels and weights are in ``scored``."""
    score = np.empty(rows.size)
    fill_margins(layout, rows, ones, x, score)
    return sum_batch(kind, score, scored) / rows.size + 0.5 * penalty * dot(x, 0, x, x.size)


@exact
def fill_scores(layout, rows, ones, x, out):
    """out[t] = z_i^T x for i = rows[t]."""
    fill_margins(layout, rows, ones, x, out)


@exact
def ridge(x, penalty):
    """penalty/2 ||x||^2."""
    return 0.5 * penalty * dot(x, 0, x, x.size)
