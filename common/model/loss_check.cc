#include "common/model/loss_check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bad.h"
#include "common/model/data_check.h"

namespace cairn {
namespace {

using Kind = v1::Loss;

bool TakesLogits(v1::Loss::Kind kind) {
  return kind == Kind::SPARSE_CATEGORICAL_CROSSENTROPY || kind == Kind::CATEGORICAL_CROSSENTROPY ||
         kind == Kind::BINARY_CROSSENTROPY || kind == Kind::BINARY_FOCAL_CROSSENTROPY ||
         kind == Kind::CATEGORICAL_FOCAL_CROSSENTROPY;
}

// Of an example's sequence, or of a batch's pairs.
bool IsBatchLoss(v1::Loss::Kind kind) { return kind == Kind::CTC || kind == Kind::CIRCLE; }

bool IsOverlap(v1::Loss::Kind kind) { return kind == Kind::DICE || kind == Kind::TVERSKY; }

// A parameter that only some kinds have: rejected for others; otherwise its default is filled in and its range checked.
struct Number {
  const char* field;
  bool has;
  float value;
  std::vector<v1::Loss::Kind> kinds;
  float low, high;
  const char* example;
};

absl::Status CheckNumber(const Number& n, v1::Loss::Kind kind) {
  if (!n.has) return absl::OkStatus();
  if (std::find(n.kinds.begin(), n.kinds.end(), kind) == n.kinds.end()) {
    return Bad(
        "loss.", n.field, ": only for ",
        absl::StrJoin(n.kinds, ", ", [](std::string* out, v1::Loss::Kind k) { out->append(v1::Loss::Kind_Name(k)); }),
        ", not ", v1::Loss::Kind_Name(kind), "; leave it out");
  }
  if (n.value >= n.low && n.value <= n.high) return absl::OkStatus();
  return Bad("loss.", n.field, ": ", n.value, " is outside [", n.low, ", ", n.high, "]; use ", n.example);
}

absl::Status CheckNumbers(const v1::Loss& loss) {
  constexpr float kMost = 1e6f;
  const Number numbers[] = {
      {"delta", loss.has_delta(), loss.delta(), {Kind::HUBER}, 1e-6f, kMost, "1"},
      {"alpha",
       loss.has_alpha(),
       loss.alpha(),
       {Kind::BINARY_FOCAL_CROSSENTROPY, Kind::CATEGORICAL_FOCAL_CROSSENTROPY, Kind::TVERSKY},
       0,
       1,
       "0.25"},
      {"beta", loss.has_beta(), loss.beta(), {Kind::TVERSKY}, 0, 1, "0.5"},
      {"gamma",
       loss.has_gamma(),
       loss.gamma(),
       {Kind::BINARY_FOCAL_CROSSENTROPY, Kind::CATEGORICAL_FOCAL_CROSSENTROPY, Kind::CIRCLE},
       0,
       loss.kind() == Kind::CIRCLE ? 1e4f : 100,
       loss.kind() == Kind::CIRCLE ? "80" : "2"},
      {"margin", loss.has_margin(), loss.margin(), {Kind::CIRCLE}, 0, 1, "0.4"},
      {"q", loss.has_q(), loss.q(), {Kind::CATEGORICAL_GENERALIZED_CROSS_ENTROPY}, 1e-6f, 1, "0.5"},
  };
  for (const Number& n : numbers) CAIRN_RETURN_IF_ERROR(CheckNumber(n, loss.kind()));
  return absl::OkStatus();
}

void FillIn(v1::Loss* loss) {
  switch (loss->kind()) {
    case Kind::HUBER:
      if (!loss->has_delta()) loss->set_delta(1);
      break;
    case Kind::BINARY_FOCAL_CROSSENTROPY:
    case Kind::CATEGORICAL_FOCAL_CROSSENTROPY:
      if (!loss->has_alpha()) loss->set_alpha(0.25f);
      if (!loss->has_gamma()) loss->set_gamma(2);
      break;
    case Kind::CIRCLE:
      if (!loss->has_gamma()) loss->set_gamma(80);
      if (!loss->has_margin()) loss->set_margin(0.4f);
      if (!loss->has_remove_diagonal()) loss->set_remove_diagonal(true);
      break;
    case Kind::TVERSKY:
      if (!loss->has_alpha()) loss->set_alpha(0.5f);
      if (!loss->has_beta()) loss->set_beta(0.5f);
      break;
    case Kind::CATEGORICAL_GENERALIZED_CROSS_ENTROPY:
      if (!loss->has_q()) loss->set_q(0.5f);
      break;
    default: break;
  }
}

absl::Status CheckSmoothing(const v1::Loss& loss) {
  const float s = loss.label_smoothing();
  if (!(s >= 0 && s < 1)) return Bad("loss.label_smoothing: ", s, " is outside [0, 1); use a number such as 0.1");
  if (s == 0 || TakesLogits(loss.kind())) return absl::OkStatus();
  return Bad("loss.label_smoothing: only for cross-entropies, not ", v1::Loss::Kind_Name(loss.kind()),
             "; leave it out");
}

// Axes are counted as in Keras, where the batch is 0.
absl::Status CheckAxis(const v1::Loss& loss, const Node& output) {
  const int rank = static_cast<int>(output.output.size()) + 1;
  std::vector<int32_t> axes;
  for (const int32_t axis : loss.axis()) axes.push_back(axis < 0 ? axis + rank : axis);
  std::sort(axes.begin(), axes.end());
  if (IsOverlap(loss.kind())) {
    std::vector<int32_t> all;
    for (int32_t axis = 1; axis < rank; ++axis) all.push_back(axis);
    if (axes == all) return absl::OkStatus();
    return Bad("loss.axis: [", absl::StrJoin(loss.axis(), ", "), "]; ", v1::Loss::Kind_Name(loss.kind()),
               " is computed for each example by itself, for a sum over the batch (Keras' default) would depend on how "
               "many replicas share it; set axis: [",
               absl::StrJoin(all, ", "), "]");
  }
  if (axes.empty()) return absl::OkStatus();
  if (loss.kind() != Kind::COSINE_SIMILARITY) {
    return Bad("loss.axis: only for COSINE_SIMILARITY, DICE and TVERSKY, not ", v1::Loss::Kind_Name(loss.kind()),
               "; leave it out");
  }
  if (axes.size() == 1 && axes[0] == rank - 1) return absl::OkStatus();
  return Bad("loss.axis: [", absl::StrJoin(loss.axis(), ", "),
             "]; COSINE_SIMILARITY is computed over the last axis; use -1, or put a permute layer before the output");
}

v1::Activation WantedActivation(v1::Loss::Kind kind) {
  switch (kind) {
    case Kind::SPARSE_CATEGORICAL_CROSSENTROPY:
    case Kind::CATEGORICAL_CROSSENTROPY:
    case Kind::CATEGORICAL_FOCAL_CROSSENTROPY:
    case Kind::CATEGORICAL_GENERALIZED_CROSS_ENTROPY: return v1::SOFTMAX;
    case Kind::BINARY_CROSSENTROPY:
    case Kind::BINARY_FOCAL_CROSSENTROPY: return v1::SIGMOID;
    default: return v1::LINEAR;
  }
}

}  // namespace

bool IsCategorical(v1::Loss::Kind kind) {
  return kind == Kind::SPARSE_CATEGORICAL_CROSSENTROPY || kind == Kind::CATEGORICAL_CROSSENTROPY ||
         kind == Kind::CATEGORICAL_FOCAL_CROSSENTROPY || kind == Kind::CATEGORICAL_GENERALIZED_CROSS_ENTROPY ||
         kind == Kind::CATEGORICAL_HINGE;
}

std::string LossNames() {
  std::vector<std::string> names;
  for (int kind = 1; kind < v1::Loss::Kind_ARRAYSIZE; ++kind) {
    if (v1::Loss::Kind_IsValid(kind)) {
      names.push_back(v1::Loss::Kind_Name(static_cast<v1::Loss::Kind>(kind)));
    }
  }
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

absl::Status CheckLoss(v1::Loss* loss, const Graph& graph) { return CheckLossOf(loss, graph.output()); }

absl::Status CheckLossOf(v1::Loss* loss, const Node& output) {
  if (loss->kind() == v1::Loss::LOSS_UNSPECIFIED) {
    return Bad("loss.kind: missing; use SPARSE_CATEGORICAL_CROSSENTROPY for classes, say");
  }
  if (!v1::Loss::Kind_IsValid(loss->kind())) {
    return Bad("loss.kind: ", static_cast<int>(loss->kind()), " is not known; use ", LossNames());
  }
  if (IsCategorical(loss->kind()) && output.output.back() < 2) {
    return Bad("loss.kind: ", v1::Loss::Kind_Name(loss->kind()), " needs one output for each class, but layer \"",
               output.name, "\" has 1; use BINARY_CROSSENTROPY for two classes, or more units");
  }
  CAIRN_RETURN_IF_ERROR(CheckSmoothing(*loss));
  CAIRN_RETURN_IF_ERROR(CheckNumbers(*loss));
  CAIRN_RETURN_IF_ERROR(CheckAxis(*loss, output));
  if (loss->apply_class_balancing() && loss->kind() != Kind::BINARY_FOCAL_CROSSENTROPY) {
    return Bad("loss.apply_class_balancing: only for BINARY_FOCAL_CROSSENTROPY, not ",
               v1::Loss::Kind_Name(loss->kind()), "; leave it out");
  }
  if (loss->has_remove_diagonal() && loss->kind() != Kind::CIRCLE) {
    return Bad("loss.remove_diagonal: only for CIRCLE, not ", v1::Loss::Kind_Name(loss->kind()), "; leave it out");
  }
  if (const size_t axes = loss->kind() == Kind::CTC ? 2 : 1;
      IsBatchLoss(loss->kind()) && output.output.size() != axes) {
    return Bad("loss.kind: ", v1::Loss::Kind_Name(loss->kind()), " takes outputs of ",
               axes == 2 ? "[steps, classes]" : "[numbers of an embedding]", ", but layer \"", output.name, "\" gives ",
               ToString(output.output), "; end the model in that shape");
  }
  if (loss->kind() == Kind::CTC && output.output.back() < 2) {
    return Bad("loss.kind: CTC needs a blank and at least one class, but layer \"", output.name,
               "\" gives 1 number a step; give it more units");
  }
  if (output.mask >= 0 && (IsOverlap(loss->kind()) || IsBatchLoss(loss->kind()))) {
    return Bad("loss.kind: ", v1::Loss::Kind_Name(loss->kind()), " takes an example as a whole, but layer \"",
               output.name, "\" has masked steps; use a loss of each step, or remove the mask");
  }
  if (loss->has_ignore_class() && loss->kind() != Kind::SPARSE_CATEGORICAL_CROSSENTROPY) {
    return Bad("loss.ignore_class: only for SPARSE_CATEGORICAL_CROSSENTROPY, not ", v1::Loss::Kind_Name(loss->kind()),
               "; leave it out");
  }
  FillIn(loss);
  return absl::OkStatus();
}

void WarnOfLoss(const v1::Loss& loss, const Graph& graph, std::vector<std::string>* warnings) {
  WarnOfLossOf(loss, graph.output(), absl::StrCat("the last layer \"", graph.output().name, "\""), warnings);
}

void WarnOfLossOf(const v1::Loss& loss, const Node& output, const std::string& layer,
                  std::vector<std::string>* warnings) {
  const std::string kind = v1::Loss::Kind_Name(loss.kind());
  const v1::Activation wanted = WantedActivation(loss.kind());
  if (loss.kind() == Kind::CTC && output.activation == v1::SOFTMAX) {
    warnings->push_back(absl::StrCat("loss.kind: CTC takes logits, but ", layer,
                                     " ends in softmax, which the loss applies itself; remove the activation"));
  }
  if (!TakesLogits(loss.kind())) {
    if (loss.from_logits()) warnings->push_back(absl::StrCat("loss.from_logits: it has no meaning for ", kind));
    if (wanted == v1::LINEAR) return;
  }
  const std::string name = absl::AsciiStrToLower(v1::Activation_Name(wanted));
  const bool probabilities = output.activation == v1::SOFTMAX || output.activation == v1::SIGMOID;
  if (loss.from_logits() && probabilities) {
    warnings->push_back(
        absl::StrCat("loss.from_logits: true, but ", layer, " ends in ",
                     absl::AsciiStrToLower(v1::Activation_Name(output.activation)),
                     ", so its outputs are not logits; set from_logits: false or remove the activation"));
  } else if (!loss.from_logits() && output.activation != wanted) {
    warnings->push_back(
        absl::StrCat("loss.kind: ", kind, " takes probabilities, but ", layer, " does not end in ", name,
                     "; give it activation: ", v1::Activation_Name(wanted),
                     probabilities || !TakesLogits(loss.kind()) ? "" : ", or set loss.from_logits: true"));
  }
}

}  // namespace cairn
