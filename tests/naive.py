"""Naive twins: everything the module computes, written once more from the papers' formulas, slowly and precisely.

Products are made anew at every step, in extended precision (long double) or in exact fractions.  Nothing here calls
the module.
"""

from fractions import Fraction

import numpy as np

LONG = np.longdouble


# --- simplex --------------------------------------------------------------------------------------------


def sorted_projection(v):
    """Projection onto the simplex by sorting."""
    v = v - v.max()
    u = np.sort(v)[::-1]
    excess = np.cumsum(u) - 1
    k = np.flatnonzero(u * np.arange(1, v.size + 1) > excess)[-1]
    return np.maximum(v - excess[k] / (k + 1), 0)


def exact_projection(v):
    """The same in exact arithmetic."""
    v = [Fraction(float(x)) for x in v]
    cumulated = Fraction(0)
    tau = None
    for k, x in enumerate(sorted(v, reverse=True), 1):
        cumulated += x
        if x > (cumulated - 1) / k:
            tau = (cumulated - 1) / k
    return np.array([float(max(x - tau, Fraction(0))) for x in v])


def entropy_prox(g, mu, q):
    """argmin <g, p> + mu KL(p || q)."""
    p = q * np.exp((g.min() - g) / mu)
    return p / p.sum()


def exact_entropy_prox(g, mu, q):
    """The same with exact differences of g, relative to the least g_i with q_i > 0."""
    low = min(Fraction(float(x)) for x, weight in zip(g, q, strict=True) if weight > 0)
    exponent = np.array(
        [
            float(max((low - Fraction(float(x))) / Fraction(mu), -(10**5)))
            if weight > 0
            else -np.inf
            for x, weight in zip(g, q, strict=True)
        ],
        LONG,
    )  # below -10^5, exp is 0 all the same
    p = np.exp(exponent) * np.asarray(q, LONG)
    return (p / p.sum()).astype(np.float64)


def l2_prox(g, mu, q):
    """argmin <g, p> + (mu/2) ||p - q||^2."""
    return sorted_projection(q - g / mu)


def exact_l2_prox(g, mu, q):
    """The same in exact arithmetic."""
    low = min(Fraction(float(x)) for x in g)
    v = [
        Fraction(float(b)) - (Fraction(float(a)) - low) / Fraction(mu)
        for a, b in zip(g, q, strict=True)
    ]
    return exact_projection(
        [max(x, Fraction(-(10**9))) for x in v]
    )  # that far below, an entry is 0 for sure


PROX = {"entropy": entropy_prox, "l2": l2_prox}


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


# --- kernels: K(A, B) given the training points X -------------------------------------------------------


def scale_gamma(X):
    return 1.0 / (X.shape[1] * X.var())


def squared_distances(A, B):
    return ((A[:, None] - B[None]) ** 2).sum(axis=2)


def arc_cosine(A, B, degree):
    """Cho & Saul 2009, degree 0 or 1, with angles that keep their digits where they are small."""
    A = np.asarray(A, LONG)
    B = np.asarray(B, LONG)
    a, b = (np.sqrt((M**2).sum(axis=1)) for M in (A, B))
    u = A / np.where(a, a, 1)[:, None]
    v = B / np.where(b, b, 1)[:, None]
    theta = 2 * np.arctan2(np.sqrt(squared_distances(u, v)), np.sqrt(squared_distances(u, -v)))
    pi = 4 * np.arctan(LONG(1))
    if degree == 0:
        return (pi - theta) / pi
    return np.outer(a, b) * (np.sin(theta) + (pi - theta) * np.cos(theta)) / pi


def tangent_limit(A, B):
    """The tangent kernel of infinite width."""
    A = np.asarray(A, LONG)
    B = np.asarray(B, LONG)
    return (arc_cosine(A, B, 1) + (A @ B.T) * arc_cosine(A, B, 0)) / 2


def tangent_kernel(W, A, B):
    """That of a network of finite width, as the manual has it."""
    A_gates = (A @ W.T > 0.0).astype(float)
    B_gates = (B @ W.T > 0.0).astype(float)
    hidden = (A_gates * (A @ W.T)) @ (B_gates * (B @ W.T)).T
    return (hidden + (A @ B.T) * (A_gates @ B_gates.T)) / len(W)


KERNELS = [  # name, parameters, formula
    ("linear", {}, lambda A, B, X: A @ B.T),
    ("poly", {}, lambda A, B, X: (scale_gamma(X) * (A @ B.T) + 1.0) ** 3),
    (
        "poly",
        {"gamma": 0.7, "coef0": 0.5, "degree": 2},
        lambda A, B, X: (0.7 * (A @ B.T) + 0.5) ** 2,
    ),
    ("rbf", {}, lambda A, B, X: np.exp(-scale_gamma(X) * squared_distances(A, B))),
    ("rbf", {"gamma": "scale"}, lambda A, B, X: np.exp(-scale_gamma(X) * squared_distances(A, B))),
    ("rbf", {"gamma": 0.3}, lambda A, B, X: np.exp(-0.3 * squared_distances(A, B))),
    ("rbf", {"sigma2": 2.0}, lambda A, B, X: np.exp(-squared_distances(A, B) / 4.0)),
    (
        "laplacian",
        {"gamma": 0.2},
        lambda A, B, X: np.exp(-0.2 * np.abs(A[:, None] - B[None]).sum(axis=2)),
    ),
    (
        "laplacian",
        {},
        lambda A, B, X: np.exp(-scale_gamma(X) * np.abs(A[:, None] - B[None]).sum(axis=2)),
    ),
    ("ntk", {}, lambda A, B, X: tangent_limit(A, B).astype(np.float64)),
]


def normalised(K, normalize):
    d = K.diagonal()
    return K / {"unit": np.sqrt(np.outer(d, d)), "max": d.max(), None: 1.0}[normalize]


# --- margins --------------------------------------------------------------------------------------------


def gram(Z):
    Z = np.asarray(Z, LONG)
    return Z @ Z.T


def norm(Z, p):
    """||p||_G."""
    return float(np.sqrt(((np.asarray(p, LONG) @ np.asarray(Z, LONG)) ** 2).sum()))


@np.errstate(divide="ignore", invalid="ignore")
def interval(Z, alpha, p):
    """min_i (G alpha)_i / ||alpha||_G, NaN where that is 0 / 0, and ||p||_G / sum p."""
    Z, alpha, p = (np.asarray(a, LONG) for a in (Z, alpha, p))
    w = Z.T @ (alpha / np.abs(alpha).max())
    v = Z.T @ (p / p.sum())
    return float((Z @ w).min() / np.sqrt(w @ w)), float(np.sqrt(v @ v))


@np.errstate(divide="ignore", invalid="ignore")
def dense_interval(G, alpha, p):
    """The same of a matrix as it stands; squares below 0 count as 0."""
    G, alpha, p = (np.asarray(a, LONG) for a in (G, alpha, p))
    alpha = alpha / np.abs(alpha).max()
    p = p / p.sum()
    m = G @ alpha
    return float(m.min() / np.sqrt(max(alpha @ m, 0))), float(np.sqrt(max(p @ G @ p, 0)))


def l1_interval(Z, w, p):
    """min_i (Z w)_i and max_j (Z'p)_j, the rows scaled by their largest entries."""
    Z, w, p = (np.asarray(a, LONG) for a in (Z, w, p))
    Z = Z / np.abs(Z).max(axis=1)[:, None]
    return float((Z @ w).min()), float((Z.T @ p).max())


def least_norm(Z):
    """min_{p in Delta} ||Z'p|| by enumeration of the supports of at most rank + 1 affinely independent rows."""
    n, d = Z.shape
    best = np.inf
    for code in range(1, 2**n):
        S = Z[[i for i in range(n) if code >> i & 1]]
        if len(S) > d + 1:
            continue
        edges = (S[1:] - S[0]).T
        c, _, rank, _ = np.linalg.lstsq(edges, -S[0], rcond=1e-10)
        if rank == len(S) - 1 and (c >= 0).all() and c.sum() <= 1:
            best = min(best, np.linalg.norm(S[0] + edges @ c))
    return best


def solved(A, b):
    """A^-1 b by steps of refinement, each of which adds the digits that a solution in double precision has."""
    A = np.asarray(A, LONG)
    x = np.zeros(len(A), LONG)
    for _ in range(4):
        x = x + np.linalg.solve(A.astype(np.float64), (b - A @ x).astype(np.float64))
    return x


def level_weights(Z, ridge):
    """v with (Z Z' + diag(r)) v = 1, by way of w = Z'v: equations in few coordinates lose no digits to a small r."""
    Z = np.asarray(Z, LONG)
    shares = Z / np.broadcast_to(ridge, len(Z))[:, None]
    w = solved(np.eye(Z.shape[1]) + shares.T @ Z, shares.sum(axis=0))
    return (1 - Z @ w) / ridge


def witness_distance(Z, points):
    """Distance of each point to {p in Delta: Z'p = 0}: the least over all supports of the distance to the flat."""
    n, d = Z.shape
    best = np.full(len(points), np.inf)
    for code in range(1, 2**n):
        on = np.array([bool(code >> i & 1) for i in range(n)])
        A = np.vstack((Z[on].T, np.ones(on.sum())))
        b = np.append(np.zeros(d), 1.0)
        inverse = np.linalg.pinv(A, rcond=1e-10)
        if np.abs(A @ (inverse @ b) - b).max() > 1e-10:
            continue
        w = np.zeros_like(points)
        w[:, on] = points[:, on] - (points[:, on] @ A.T - b) @ inverse.T
        inside = w.min(axis=1) >= -1e-12
        best[inside] = np.minimum(best, np.linalg.norm(points - w, axis=1))[inside]
    return best


# --- algorithms: generators of (alpha_k, p_k, flag), with the options of the module ----------------------
#
# The flag is "separated" or "infeasible" where the run ends, and "restart" where p_k becomes the next centre.


def distribution(weights):
    """weights / sum; uniform where they are all 0."""
    return (
        weights / weights.sum() if weights.any() else np.full(len(weights), 1 / LONG(len(weights)))
    )


def perceptron(Z, rule="cyclic"):
    G = gram(Z)
    n = len(Z)
    last = -1
    alpha = np.zeros(n, LONG)
    while True:
        m = G @ alpha
        wrong = [i % n for i in range(last + 1, last + 1 + n) if m[i % n] <= 0]
        yield alpha, distribution(alpha), "" if wrong else "separated"
        if not wrong:
            return
        last = wrong[0] if rule == "cyclic" else int(np.argmin(m))
        alpha = alpha + np.eye(n)[last]


def nkp(Z, stop="separated"):
    G = gram(Z)
    n = len(Z)
    k = 0
    alpha = np.zeros(n, LONG)
    while True:
        m = G @ alpha
        done = stop == "separated" and m.min() > 0
        yield alpha, alpha if k else distribution(alpha), "separated" if done else ""
        if done:
            return
        theta = 1 / LONG(k + 1)
        alpha = (1 - theta) * alpha + theta * np.eye(n)[np.argmin(m)]
        k += 1


def von_neumann(Z, eps, stop=None, start=None):
    G = gram(Z)
    n = len(Z)
    p = np.full(n, 1 / LONG(n)) if start is None else np.eye(n, dtype=LONG)[start]
    while True:
        m = G @ p
        ends = "separated" if stop and m.min() > 0 else "infeasible" if p @ m <= eps**2 else ""
        yield p, p, ends
        if ends:
            return
        j = int(np.argmin(m))
        direction = np.eye(n)[j] - p
        curvature = direction @ G @ direction
        if curvature > 0:
            p = p + min(max(-(direction @ m) / curvature, 0), 1) * direction


def frank_wolfe(Z, eps, variant="pairwise", stop=None):
    G = gram(Z)
    n = len(Z)
    start = np.argmax(G.diagonal() <= (1 + 1e-9) * G.diagonal().min())
    if variant == "plain":
        yield from von_neumann(Z, eps, stop, start)
        return
    p = np.eye(n, dtype=LONG)[start]
    while True:
        m = G @ p
        ends = "separated" if stop and m.min() > 0 else "infeasible" if p @ m <= eps**2 else ""
        yield p, p, ends
        if ends:
            return
        p = exchanged(G, p, int(np.argmin(m)), int(np.argmax(np.where(p > 0, m, -np.inf))))


def exchanged(G, p, j, a):
    """p after an exact pairwise step of Frank-Wolfe."""
    direction = np.eye(len(G))[j] - np.eye(len(G))[a]
    curvature = direction @ G @ direction
    t = min(max(-(direction @ G @ p) / curvature, 0), p[a]) if curvature > 0 else 0
    new = p + t * direction
    new[a] = 0 if t == p[a] else new[a]
    return new


def smoothed(Z, prox, q=None, delta=-1.0, gamma=None, eps=None, stop="separated"):
    """Algorithms 4, 6 and 7 of ramdas14."""
    G = gram(Z)
    n = len(Z)
    mu0 = G.diagonal().max() * (2 if prox == "entropy" else 2 * n)
    q = np.full(n, 1 / LONG(n)) if q is None else np.asarray(q, LONG)
    prox = PROX[prox]
    if gamma is not None:
        delta = np.sqrt(q @ G @ q) / gamma
    alpha = q
    mu = mu0
    inner = 0
    p = prox(G @ alpha, mu, q)
    while True:
        size = np.sqrt(max(p @ G @ p, 0))
        if stop and (G @ alpha).min() > 0:
            yield alpha, p, "separated"
            return
        if size < delta and (gamma is None or delta < eps):
            yield alpha, p, "infeasible"
            return
        if size < delta:
            yield alpha, p, "restart"
            q = p
            delta = size / gamma
            alpha = p
            mu = mu0
            inner = 0
            p = prox(G @ alpha, mu, q)
            continue
        yield alpha, p, ""
        theta = 2 / LONG(inner + 3)
        alpha = (1 - theta) * (alpha + theta * p) + theta**2 * prox(G @ alpha, mu, q)
        mu = (1 - theta) * mu
        p = (1 - theta) * p + theta * prox(G @ alpha, mu, q)
        inner += 1


def snkp(Z, eps=0.0, stop="separated"):
    return smoothed(Z, "entropy", delta=eps, stop=stop)


def snkpvn(Z, delta, q=None):
    return smoothed(Z, "l2", q, delta)


def isnkpvn(Z, eps, gamma=2.0, prox="l2"):
    return smoothed(Z, prox, gamma=gamma, eps=eps)


def winnow(Z, eta):
    """The weights are multiplied, not summed in logarithms."""
    Z = np.asarray(Z, LONG)
    Z = Z / np.abs(Z).max(axis=1)[:, None]
    w = np.full(Z.shape[1], 1 / LONG(Z.shape[1]))
    hits = np.zeros(len(Z), LONG)
    while True:
        m = Z @ w
        p = distribution(hits)
        flag = "separated" if m.min() > 0 else "infeasible" if (Z.T @ p).max() <= 0 else ""
        yield w, p, flag
        if flag == "separated":
            return
        i = int(np.argmin(m))
        hits[i] += 1
        w = w * np.exp(eta * Z[i])
        w = w / w.sum()


def logistic_weights(m):
    """grad psi(-m), psi = l^{-1}(sum l), l(z) = ln(1 + e^z): l'(-m_i) / l'(psi), and ln l'(psi)."""
    m = np.asarray(m, LONG)
    if m.min() > 100:  # l(z) = e^z and l'(psi) = psi, to e^-100
        shifted = np.exp(m.min() - m)
        return shifted / shifted.sum(), np.log(shifted.sum()) - m.min()
    total = np.logaddexp(LONG(0), -m).sum()
    # l'(psi) = 1 - e^-total;  l'(-m) = 1 / (1 + e^m)
    log_slope = np.log(-np.expm1(-total))
    return np.exp(-np.logaddexp(LONG(0), m) - log_slope), log_slope


def gradient_descent(Z, step=1.0, loss="exp"):
    G = gram(Z)
    n = len(Z)
    alpha = np.zeros(n, LONG)
    while True:
        yield alpha, distribution(alpha), ""
        m = G @ alpha
        alpha = (
            alpha
            + step / G.diagonal().max() * (np.exp(-m) if loss == "exp" else 1 / (1 + np.exp(m))) / n
        )


def normalized_gradient_descent(Z, step=1.0, schedule="constant", divide_by="risk"):
    G = gram(Z)
    t = 0
    s = G.diagonal().max()
    alpha = np.zeros(len(Z), LONG)
    while True:
        yield alpha, distribution(alpha), ""
        theta = step / (np.sqrt(LONG(t + 1)) if schedule == "sqrt" else 1)
        v = np.exp(-G @ alpha)  # n times the risk is sum v
        alpha = alpha + theta * (
            v / v.sum() / s if divide_by == "risk" else v / np.sqrt(v @ G @ v) / np.sqrt(s)
        )
        t += 1


def momentum(Z, loss="exp", shifted=True, eps=0.0):
    """Its p is mu_t."""
    G = gram(Z)
    n = len(Z)
    t = 0
    shift, step = (np.log(LONG(n)), 1 - np.exp(LONG(-1))) if shifted else (0, 1 / LONG(n))
    alpha, g = np.zeros((2, n), LONG)
    while True:
        q = softmax(-G @ alpha) if loss == "exp" else logistic_weights(G @ alpha + shift)[0]
        mu = distribution(g + q)
        if mu @ G @ mu <= LONG(eps) ** 2:
            yield alpha, mu, "infeasible"
            return
        yield alpha, mu, ""
        g = LONG(t) / (t + 1) * (g + q)
        alpha = alpha + (1 if loss == "exp" else step) / G.diagonal().max() * (g + q)
        t += 1


def accelerated(Z, first, ahead):
    """The recursion of SNKP, (1/2, 2), and of momentum from its first step on, (1, 3): yields (a_k, p_k).

    theta_k = 2/(k+3), nu = (1 - theta) p + theta q, a <- a + (k + ahead)/(2s) nu, p <- (1 - theta) p + theta q+, with
    q = softmax(-G a), from a_0 = first/(n s), p_0 = q_0."""
    G = gram(Z)
    n = len(Z)
    k = 0
    s = G.diagonal().max()
    a = np.full(n, LONG(first) / n / s)
    q = p = softmax(-G @ a)
    while True:
        yield a, p
        theta = 2 / LONG(k + 3)
        a = a + LONG(k + ahead) / 2 / s * ((1 - theta) * p + theta * q)
        q = softmax(-G @ a)
        p = (1 - theta) * p + theta * q
        k += 1


def nesterov_on_the_dual(Z):
    """ji21's dual form of `momentum`: lambda_t = 2/(t+2), nu_t = (1 - lambda_t) mu_t + lambda_t q_t,
    q_{t+1} ~ q_t exp(-G nu_t / (lambda_t s)), mu_{t+1} = (1 - lambda_t) mu_t + lambda_t q_{t+1}, mu_0 = q_0 = 1/n.
    Yields (w_t, g_t, mu_t)."""
    Z = np.asarray(Z, LONG)
    G = gram(Z)
    n = len(Z)
    t = 0
    s = G.diagonal().max()
    log_q = np.zeros(n, LONG)
    mu = np.full(n, 1 / LONG(n))
    g = np.zeros(Z.shape[1], LONG)
    w = np.zeros(Z.shape[1], LONG)
    while True:
        q = softmax(log_q)
        g = LONG(t) / (t + 1) * (g + Z.T @ q)
        yield w, g, mu
        w = w + (g + Z.T @ q) / s
        lam = 2 / LONG(t + 2)
        log_q = log_q - G @ ((1 - lam) * mu + lam * q) / (lam * s)
        mu = (1 - lam) * mu + lam * softmax(log_q)
        t += 1


def batch_perceptron(Z, averaged=True):
    G = gram(Z)
    n = len(Z)
    t = 1
    w, total, hits = np.zeros((3, n), LONG)
    while True:
        yield total if averaged else w, distribution(hits), ""
        i = np.argmin(G @ w)
        w = w + np.eye(n)[i] / np.sqrt(G.diagonal().max() * t)
        w = w / max(1, np.sqrt(w @ G @ w))
        total = total + w
        hits = hits + np.eye(n)[i]
        t += 1


def adaptive_sampling(Z, momentum=True, step=1.0, seed=0):
    """Rows by inverting the distribution function of q at the seed's uniform numbers."""
    G = gram(Z)
    n = len(Z)
    t = 0
    random = np.random.PCG64(seed)
    alpha, g = np.zeros((2, n), LONG)
    while True:
        yield alpha, distribution(alpha), ""
        uniform = LONG(random.random_raw() // 2**11) / 2**53
        e = np.eye(n)[np.searchsorted(np.cumsum(softmax(-G @ alpha)), uniform, side="right")]
        g = LONG(t) / (t + 1) * (g + e) if momentum else g
        alpha = alpha + LONG(step) / G.diagonal().max() * (g + e)
        t += 1


SCHEDULES = {
    "1/log(1+t)": lambda t: 1.0 / np.log1p(t),
    "1/sqrt(t)": lambda t: 1.0 / np.sqrt(t),
    "1/t": lambda t: 1.0 / t,
    "1/t^2": lambda t: 1.0 / t**2,
    "2^-t": lambda t: 0.5**t,
}


def diagonal_descent(Z, step, lam="1/t", lam0=1.0, accel=None, restart=False):
    """The paper's formulas in u = -alpha; lam by name or a callable."""
    Z = np.asarray(Z, LONG)
    t = LONG(1)
    s = SCHEDULES.get(lam, lam)
    age = LONG(1)
    u = before = np.zeros(len(Z), LONG)
    while True:
        yield -u, distribution(-u), ""
        z = u if accel is None else u + (age / (age + LONG(accel))) * (u - before)
        g = z - step * (Z @ (Z.T @ z))
        u, before = np.clip(g - step, -1 / (lam0 * s(t)), 0), u
        t = t + 1
        age = age + 1
        if restart and (z - u) @ (u - before) > 0:
            age = LONG(1)
            before = u


def inertial_diagonal_descent(Z, step, lam="1/t", lam0=1.0, accel=10.0, restart=False):
    return diagonal_descent(Z, step, lam, lam0, accel, restart)


def homotopic_subgradient(Z, a=0.25, b=0.5):
    Z = np.asarray(Z, LONG)
    t = LONG(1)
    s = (Z * Z).sum(axis=1).max()
    alpha = np.zeros(len(Z), LONG)
    while True:
        yield alpha, distribution(alpha), ""
        m = Z @ (Z.T @ alpha)
        eta = t**-b / s
        alpha = (1 - eta * s * t**-a) * alpha + eta / len(Z) * (m < 1)
        t += 1


def subspace_perceptron(Z, mu, steps=200):
    """At fixed mu, for rows of norm at most 1, with the minimum over the span found exactly; p is the last q.

    The loop stops its Newton steps early, by a rule in which rounding decides: it is held to the inequalities that its
    theorems rest on, and its parts, run with a tight tolerance, to this.
    """
    Z, n, tilt = np.asarray(Z, LONG), len(Z), np.log(LONG(2)) - LONG(1) / 2
    alpha = np.zeros(n, LONG)
    q = np.full(n, 1 / LONG(n))
    past = []
    while True:
        yield alpha, q, ""
        past.append(q)
        Q = np.array(past)
        basis = np.linalg.qr((Q @ Z).T.astype(float))[0].astype(LONG)
        A = Z @ basis
        T = 1 - (A**2).sum(axis=1)
        y = basis.T @ (Z.T @ alpha)

        def value(y, A=A, T=T):
            x = tilt * T - A @ y
            return mu * (y @ y) / 2 + x.max() + np.log(np.exp(x - x.max()).sum())

        for _ in range(steps):
            q = softmax(tilt * T - A @ y)
            slope = mu * y - A.T @ q
            H = mu * np.eye(len(slope)) + (A.T * q) @ A - np.outer(A.T @ q, A.T @ q)
            move = -np.linalg.solve(H.astype(float), slope.astype(float)).astype(LONG)
            length = LONG(1)
            while length > 1e-18 and value(y + length * move) > value(y) + 1e-18:
                length /= 2
            y = y + length * move
            if np.abs(move).max() < 1e-15 * np.abs(y).max():
                break
        q = softmax(tilt * T - A @ y)
        alpha = (
            Q.T @ np.linalg.lstsq((Q @ Z).T.astype(float), (basis @ y).astype(float), rcond=None)[0]
        )


TWINS = {
    twin.__name__: twin
    for twin in (
        perceptron,
        nkp,
        von_neumann,
        frank_wolfe,
        snkp,
        snkpvn,
        isnkpvn,
        winnow,
        gradient_descent,
        normalized_gradient_descent,
        momentum,
        batch_perceptron,
        adaptive_sampling,
        diagonal_descent,
        inertial_diagonal_descent,
        homotopic_subgradient,
        subspace_perceptron,
    )
}
