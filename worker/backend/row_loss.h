// Losses of one row of numbers other than those of class_loss.h: the formulas of keras.losses (Keras 3), with
// gradients.
//
// Written once for all backends: plain C++ that nvcc compiles too, without memory of its own. Pure functions.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define CAIRN_ROW_LOSS __device__ __forceinline__  // else the row and what it is given lie in local memory
#else
#define CAIRN_ROW_LOSS inline
#endif

namespace cairn {

// The numbers are those of v1::Loss::Kind (loss.cc checks it).
enum class RowLossKind : int32_t {
  kMeanAbsolute = 5,
  kMeanAbsolutePercentage = 6,
  kMeanSquaredLogarithmic = 7,
  kHuber = 8,
  kLogCosh = 9,
  kKlDivergence = 10,
  kPoisson = 11,
  kHinge = 12,
  kSquaredHinge = 13,
  kCategoricalHinge = 14,
  kCosine = 15,
  kBinaryFocal = 16,
  kCategoricalFocal = 17,
  kDice = 18,
  kTversky = 19,
  kGeneralizedCrossEntropy = 21,
};

struct RowLossSettings {
  int32_t kind = 0;
  bool logits = false;     // the focal ones
  bool balancing = false;  // kBinaryFocal
  float delta = 1;         // kHuber
  float alpha = 0.25f;     // focal, kTversky
  float beta = 0.5f;       // kTversky
  float gamma = 2;         // focal
  float q = 0.5f;          // kGeneralizedCrossEntropy
};

// The loss of a row x [n] with targets t(i). g(i, value) takes the gradient, which the caller scales; it is not called
// if kGradient is false. keras.config.epsilon() is 1e-7.
template <typename Real, bool kGradient, class Target, class Gradient>
class RowLoss {
 public:
  CAIRN_ROW_LOSS RowLoss(const RowLossSettings& settings, const Real* x, int64_t n, Target t, Gradient g)
      : s_(settings), x_(x), n_(n), t_(t), g_(g) {}

  CAIRN_ROW_LOSS double Compute() {
    switch (static_cast<RowLossKind>(s_.kind)) {
      case RowLossKind::kCategoricalHinge: return CategoricalHinge();
      case RowLossKind::kCosine: return Cosine();
      case RowLossKind::kCategoricalFocal: return CategoricalFocal();
      case RowLossKind::kDice: return Dice();
      case RowLossKind::kTversky: return Tversky();
      case RowLossKind::kGeneralizedCrossEntropy: return GeneralizedCrossEntropy();
      case RowLossKind::kKlDivergence: return KlDivergence();
      default: return MeanOfElements();
    }
  }

 private:
  static constexpr Real kEpsilon = Real(1e-7);

  CAIRN_ROW_LOSS static Real Larger(Real a, Real b) { return a > b ? a : b; }
  CAIRN_ROW_LOSS static Real Clip(Real p) { return p < kEpsilon ? kEpsilon : (p > 1 - kEpsilon ? 1 - kEpsilon : p); }
  CAIRN_ROW_LOSS static bool Clipped(Real p) { return p < kEpsilon || p > 1 - kEpsilon; }
  CAIRN_ROW_LOSS static Real Magnitude(Real v) { return v < 0 ? -v : v; }
  CAIRN_ROW_LOSS static Real SignOf(Real v) { return v > 0 ? Real(1) : (v < 0 ? Real(-1) : Real(0)); }
  CAIRN_ROW_LOSS static Real SigmoidOf(Real x) {
    using std::exp;
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
  }

  // ---- element-wise, the mean over the row ----

  CAIRN_ROW_LOSS double MeanOfElements() {
    const Real mean = Real(1) / static_cast<Real>(n_);
    double loss = 0;
    for (int64_t i = 0; i < n_; ++i) {
      Real slope = 0;
      loss += static_cast<double>(Element(x_[i], t_(i), &slope));
      if (kGradient) g_(i, slope * mean);
    }
    return loss / static_cast<double>(n_);
  }

  // slope: the derivative with respect to x.
  CAIRN_ROW_LOSS Real Element(Real x, Real t, Real* slope) const {
    using std::exp;
    using std::log;
    using std::log1p;
    using std::tanh;
    const Real e = x - t;
    switch (static_cast<RowLossKind>(s_.kind)) {
      case RowLossKind::kMeanAbsolute: *slope = SignOf(e); return Magnitude(e);
      case RowLossKind::kMeanAbsolutePercentage: {
        const Real of = Real(100) / Larger(Magnitude(t), kEpsilon);
        *slope = SignOf(e) * of;
        return Magnitude(e) * of;
      }
      case RowLossKind::kMeanSquaredLogarithmic: {
        const Real d = log(Larger(x, kEpsilon) + 1) - log(Larger(t, kEpsilon) + 1);
        *slope = x > kEpsilon ? 2 * d / (x + 1) : Real(0);
        return d * d;
      }
      case RowLossKind::kHuber: {
        const Real delta = s_.delta, size = Magnitude(e);
        *slope = size <= delta ? e : delta * SignOf(e);
        return size <= delta ? Real(0.5) * e * e : delta * size - Real(0.5) * delta * delta;
      }
      case RowLossKind::kLogCosh: {
        const Real size = Magnitude(e);
        *slope = tanh(e);
        return size + log1p(exp(-2 * size)) - Real(0.69314718055994530942);
      }
      case RowLossKind::kPoisson: *slope = 1 - t / (x + kEpsilon); return x - t * log(x + kEpsilon);
      case RowLossKind::kHinge:
      case RowLossKind::kSquaredHinge: {
        const Real side = t > 0 ? Real(1) : Real(-1), short_of = Larger(1 - side * x, 0);
        const bool squared = static_cast<RowLossKind>(s_.kind) == RowLossKind::kSquaredHinge;
        *slope = short_of > 0 ? -side * (squared ? 2 * short_of : Real(1)) : Real(0);
        return squared ? short_of * short_of : short_of;
      }
      case RowLossKind::kBinaryFocal: return BinaryFocal(x, t, slope);
      default: return 0;
    }
  }

  // Lin et al. 2018: (1 - p_t)^gamma times the cross-entropy.
  CAIRN_ROW_LOSS Real BinaryFocal(Real x, Real t, Real* slope) const {
    using std::log;
    using std::pow;
    const Real p = s_.logits ? SigmoidOf(x) : x, c = Clip(p);
    const Real entropy = -(t * log(c) + (1 - t) * log(1 - c));
    const Real missing = 1 - (t * p + (1 - t) * (1 - p)), gamma = s_.gamma;
    const Real weight = s_.balancing ? t * s_.alpha + (1 - t) * (1 - s_.alpha) : Real(1);
    const Real factor = pow(Larger(missing, 0), gamma);
    const Real entropy_slope = Clipped(p) ? Real(0) : (c - t) / (c * (1 - c));
    const Real factor_slope = missing > 0 && gamma != 0 ? -gamma * pow(missing, gamma - 1) * (2 * t - 1) : Real(0);
    *slope = weight * (factor * entropy_slope + factor_slope * entropy) * (s_.logits ? p * (1 - p) : Real(1));
    return weight * factor * entropy;
  }

  // ---- of the whole row ----

  CAIRN_ROW_LOSS double KlDivergence() {
    using std::log;
    double loss = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const Real one = 1, t = t_(i) < kEpsilon ? kEpsilon : (t_(i) > one ? one : t_(i));
      const Real p = x_[i] < kEpsilon ? kEpsilon : (x_[i] > one ? one : x_[i]);
      loss += static_cast<double>(t * log(t / p));
      if (kGradient) g_(i, p == x_[i] ? -t / p : Real(0));
    }
    return loss;
  }

  CAIRN_ROW_LOSS double CategoricalHinge() {
    Real own = 0, most = -INFINITY;
    int64_t at = 0;
    for (int64_t i = 0; i < n_; ++i) {
      own += t_(i) * x_[i];
      const Real other = (1 - t_(i)) * x_[i];
      if (other > most) {
        most = other;
        at = i;
      }
    }
    const Real loss = Larger(most - own + 1, 0);
    if (kGradient) {
      for (int64_t i = 0; i < n_; ++i) g_(i, loss > 0 ? (i == at ? 1 - t_(i) : Real(0)) - t_(i) : Real(0));
    }
    return loss;
  }

  CAIRN_ROW_LOSS double Cosine() {
    using std::sqrt;
    Real xx = 0, tt = 0, xt = 0;
    for (int64_t i = 0; i < n_; ++i) {
      xx += x_[i] * x_[i];
      tt += t_(i) * t_(i);
      xt += x_[i] * t_(i);
    }
    const Real long_x = Larger(sqrt(xx), kEpsilon), long_t = Larger(sqrt(tt), kEpsilon);
    const Real cosine = xt / (long_x * long_t);
    if (kGradient) {
      const bool grows = sqrt(xx) > kEpsilon;
      for (int64_t i = 0; i < n_; ++i) {
        g_(i, -(t_(i) / (long_x * long_t) - (grows ? cosine * x_[i] / (long_x * long_x) : Real(0))));
      }
    }
    return -cosine;
  }

  // p: the probabilities, divided by their sum and clipped. The loss is -alpha (1 - p)^gamma t log p.
  CAIRN_ROW_LOSS double CategoricalFocal() {
    using std::exp;
    using std::log;
    using std::pow;
    Real most = x_[0], sum = 0;
    for (int64_t i = 1; i < n_; ++i) most = Larger(most, x_[i]);
    for (int64_t i = 0; i < n_; ++i) sum += s_.logits ? exp(x_[i] - most) : x_[i];
    const Real alpha = s_.alpha, gamma = s_.gamma;
    const auto share = [&](int64_t i) { return (s_.logits ? exp(x_[i] - most) : x_[i]) / sum; };
    // The derivative with respect to the normalized probability.
    const auto slope = [&](int64_t i) -> Real {
      const Real p = share(i);
      if (Clipped(p)) return 0;
      const Real bend = gamma == 0 ? Real(0) : gamma * pow(1 - p, gamma - 1) * log(p);
      return -alpha * t_(i) * (pow(1 - p, gamma) / p - bend);
    };
    double loss = 0;
    Real weighted = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const Real c = Clip(share(i));
      loss -= static_cast<double>(alpha * pow(1 - c, gamma) * t_(i) * log(c));
      if (kGradient) weighted += share(i) * slope(i);
    }
    if (kGradient) {
      for (int64_t i = 0; i < n_; ++i) g_(i, (slope(i) - weighted) * (s_.logits ? share(i) : 1 / sum));
    }
    return loss;
  }

  CAIRN_ROW_LOSS double Dice() {
    Real both = 0, all = 0;
    for (int64_t i = 0; i < n_; ++i) {
      both += t_(i) * x_[i];
      all += t_(i) + x_[i];
    }
    const Real above = 2 * both + kEpsilon, below = all + kEpsilon;
    if (kGradient) {
      for (int64_t i = 0; i < n_; ++i) g_(i, -(2 * t_(i) * below - above) / (below * below));
    }
    return 1 - above / below;
  }

  // Salehi et al. 2017.
  CAIRN_ROW_LOSS double Tversky() {
    Real both = 0, too_much = 0, missed = 0;
    for (int64_t i = 0; i < n_; ++i) {
      both += t_(i) * x_[i];
      too_much += (1 - t_(i)) * x_[i];
      missed += t_(i) * (1 - x_[i]);
    }
    const Real above = both + kEpsilon, below = both + too_much * s_.alpha + missed * s_.beta + kEpsilon;
    if (kGradient) {
      for (int64_t i = 0; i < n_; ++i) {
        const Real t = t_(i), down = t + (1 - t) * s_.alpha - t * s_.beta;
        g_(i, -(t * below - above * down) / (below * below));
      }
    }
    return 1 - above / below;
  }

  // Zhang and Sabuncu 2018: (1 - p^q) / q of the target's probability.
  CAIRN_ROW_LOSS double GeneralizedCrossEntropy() {
    using std::pow;
    Real p = 0;
    for (int64_t i = 0; i < n_; ++i) p += t_(i) * x_[i];
    const Real q = s_.q, kept = Larger(p, kEpsilon);  // the slope at 0 would be infinite
    if (kGradient) {
      for (int64_t i = 0; i < n_; ++i) g_(i, -t_(i) * pow(kept, q - 1));
    }
    return (1 - pow(Larger(p, 0), q)) / q;
  }

  const RowLossSettings& s_;
  const Real* x_;
  const int64_t n_;
  Target t_;
  Gradient g_;
};

}  // namespace cairn
