// Each optimizer with its formula in double precision, from the documentation of keras.optimizers.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace cairn {

// The history of one number: w, g (mean gradient), lr, t -> new w; s holds the slots.
using Formula = std::function<double(double w, double g, double lr, int t, std::vector<double>& s)>;

struct Case {
  std::string name;
  std::string text;
  std::vector<double> slots;  // initial
  Formula formula;
};

inline Formula AdamFormula(double b1, double b2, double eps, bool amsgrad, double decay) {
  return [=](double w, double g, double lr, int t, std::vector<double>& s) {
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = b2 * s[1] + (1 - b2) * g * g;
    double second = s[1];
    if (amsgrad) second = s[2] = std::max(s[2], s[1]);
    const double alpha = lr * std::sqrt(1 - std::pow(b2, t)) / (1 - std::pow(b1, t));
    w *= 1 - decay * lr;
    return w - alpha * s[0] / (std::sqrt(second) + eps);
  };
}

// torch.optim.Adam and AdamW: epsilon is added after the correction.
inline Formula TorchAdamFormula(double b1, double b2, double eps, double decay) {
  return [=](double w, double g, double lr, int t, std::vector<double>& s) {
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = b2 * s[1] + (1 - b2) * g * g;
    w *= 1 - decay * lr;
    return w - lr * s[0] / (1 - std::pow(b1, t)) / (std::sqrt(s[1] / (1 - std::pow(b2, t))) + eps);
  };
}

inline Formula RmsPropFormula(double rho, double momentum, double eps, bool centered) {
  return [=](double w, double g, double lr, int, std::vector<double>& s) {
    s[0] = rho * s[0] + (1 - rho) * g * g;
    double variance = s[0];
    if (centered) {
      double& mean = s[momentum > 0 ? 2 : 1];
      mean = rho * mean + (1 - rho) * g;
      variance -= mean * mean;
    }
    const double step = lr * g / std::sqrt(variance + eps);
    if (momentum == 0) return w - step;
    s[1] = momentum * s[1] + step;
    return w - s[1];
  };
}

inline std::vector<Case> Cases() {
  return {
      {"Sgd", "sgd {}", {}, [](double w, double g, double lr, int, std::vector<double>&) { return w - lr * g; }},
      {"NesterovWithoutMomentumIsSgd",
       "sgd { nesterov: true }",
       {},
       [](double w, double g, double lr, int, std::vector<double>&) { return w - lr * g; }},
      {"Momentum",
       "sgd { momentum: 0.9 }",
       {0},
       [](double w, double g, double lr, int, std::vector<double>& s) {
         s[0] = 0.9 * s[0] - lr * g;
         return w + s[0];
       }},
      {"Nesterov",
       "sgd { momentum: 0.8 nesterov: true }",
       {0},
       [](double w, double g, double lr, int, std::vector<double>& s) {
         s[0] = 0.8 * s[0] - lr * g;
         return w + 0.8 * s[0] - lr * g;
       }},
      {"Adagrad",
       "adagrad {}",
       {0.1},
       [](double w, double g, double lr, int, std::vector<double>& s) {
         s[0] += g * g;
         return w - lr * g / std::sqrt(s[0] + 1e-7);
       }},
      {"AdagradOptions",
       "adagrad { initial_accumulator_value: 0.5 epsilon: 0.01 }",
       {0.5},
       [](double w, double g, double lr, int, std::vector<double>& s) {
         s[0] += g * g;
         return w - lr * g / std::sqrt(s[0] + 0.01);
       }},
      {"RmsProp", "rmsprop {}", {0}, RmsPropFormula(0.9, 0, 1e-7, false)},
      {"RmsPropMomentum",
       "rmsprop { rho: 0.8 momentum: 0.9 epsilon: 1e-3 }",
       {0, 0},
       RmsPropFormula(0.8, 0.9, 1e-3, false)},
      {"RmsPropCentered", "rmsprop { centered: true }", {0, 0}, RmsPropFormula(0.9, 0, 1e-7, true)},
      {"RmsPropCenteredMomentum",
       "rmsprop { centered: true momentum: 0.5 }",
       {0, 0, 0},
       RmsPropFormula(0.9, 0.5, 1e-7, true)},
      {"Adam", "adam {}", {0, 0}, AdamFormula(0.9, 0.999, 1e-7, false, 0)},
      {"AdamOptions", "adam { beta_1: 0.8 beta_2: 0.9 epsilon: 0.1 }", {0, 0}, AdamFormula(0.8, 0.9, 0.1, false, 0)},
      {"AdamAmsgrad", "adam { amsgrad: true }", {0, 0, 0}, AdamFormula(0.9, 0.999, 1e-7, true, 0)},
      {"AdamCorrectedEpsilon",
       "adam { epsilon: 0.1 corrected_epsilon: true }",
       {0, 0},
       TorchAdamFormula(0.9, 0.999, 0.1, 0)},
      {"AdamWCorrectedEpsilon",
       "adamw { epsilon: 0.1 weight_decay: 0.1 corrected_epsilon: true }",
       {0, 0},
       TorchAdamFormula(0.9, 0.999, 0.1, 0.1)},
      {"AdamW", "adamw {}", {0, 0}, AdamFormula(0.9, 0.999, 1e-7, false, 0.004)},
      {"AdamWAmsgrad",
       "adamw { amsgrad: true weight_decay: 0.1 }",
       {0, 0, 0},
       AdamFormula(0.9, 0.999, 1e-7, true, 0.1)},
      {"Adadelta",
       "adadelta {}",
       {0, 0},
       [](double w, double g, double lr, int, std::vector<double>& s) {
         s[0] = 0.95 * s[0] + 0.05 * g * g;
         const double d = -std::sqrt(s[1] + 1e-7) / std::sqrt(s[0] + 1e-7) * g;
         s[1] = 0.95 * s[1] + 0.05 * d * d;
         return w + lr * d;
       }},
      {"Adamax",
       "adamax { beta_1: 0.8 }",
       {0, 0},
       [](double w, double g, double lr, int t, std::vector<double>& s) {
         s[0] = 0.8 * s[0] + 0.2 * g;
         s[1] = std::max(0.999 * s[1], std::abs(g));
         return w - lr * s[0] / ((1 - std::pow(0.8, t)) * (s[1] + 1e-7));
       }},
      {"Nadam",
       "nadam {}",
       {0, 0},
       [](double w, double g, double lr, int t, std::vector<double>& s) {
         const auto u = [](int i) { return 0.9 * (1 - 0.5 * std::pow(0.96, i)); };
         double product = 1;
         for (int i = 1; i <= t; ++i) product *= u(i);
         s[0] = 0.9 * s[0] + 0.1 * g;
         s[1] = 0.999 * s[1] + 0.001 * g * g;
         const double m = u(t + 1) * s[0] / (1 - product * u(t + 1)) + (1 - u(t)) * g / (1 - product);
         return w - lr * m / (std::sqrt(s[1] / (1 - std::pow(0.999, t))) + 1e-7);
       }},
      {"Ftrl",
       "ftrl { l1_regularization_strength: 0.01 l2_regularization_strength: 0.02 beta: 0.1 "
       "l2_shrinkage_regularization_strength: 0.03 }",
       {0.1, 0},
       [](double w, double g, double lr, int, std::vector<double>& s) {
         const double next = s[0] + g * g;
         s[1] += g + 2 * 0.03 * w - (std::sqrt(next) - std::sqrt(s[0])) / lr * w;
         s[0] = next;
         const double l2 = 0.02 + 0.1 / (2 * lr);
         return (std::clamp(s[1], -0.01, 0.01) - s[1]) / (std::sqrt(next) / lr + 2 * l2);
       }},
      {"FtrlPowerMinus1",
       "ftrl { learning_rate_power: -1 initial_accumulator_value: 1 }",
       {1, 0},
       [](double w, double g, double lr, int, std::vector<double>& s) {
         const double next = s[0] + g * g;
         s[1] += g - (next - s[0]) / lr * w;
         s[0] = next;
         return -s[1] / (next / lr);
       }},
      {"Lion",
       "lion {}",
       {0},
       [](double w, double g, double lr, int, std::vector<double>& s) {
         const double to = 0.9 * s[0] + 0.1 * g;
         s[0] = 0.99 * s[0] + 0.01 * g;
         return w - lr * (to > 0 ? 1 : to < 0 ? -1 : 0);
       }},
      {"ScheduleFreeAdamW",
       "schedule_free_adamw { warmup_steps: 4 }",
       {0, 0},
       [](double w, double g, double lr, int t, std::vector<double>& s) {
         if (t == 1 && s[0] == 0) s[0] = w;
         s[1] = 0.999 * s[1] + 0.001 * g * g;
         const double average = (w - 0.1 * s[0]) / 0.9, rate = lr * std::min(t / 4.0, 1.0);
         s[0] -= rate * g / (std::sqrt(s[1] / (1 - std::pow(0.999, t))) + 1e-8);
         return 0.1 * s[0] + 0.9 * ((1 - 1.0 / t) * average + s[0] / t);
       }},
  };
}

}  // namespace cairn
