#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/data_check.h"
#include "common/model/given.h"
#include "common/model/limits.h"
#include "common/model/loss_check.h"
#include "common/model/metric_sums.h"
#include "common/tensor/limits.h"

namespace cairn {
namespace {

constexpr int32_t kTopKDefault = 5, kThresholdsDefault = 200;

class MetricCheck {
 public:
  MetricCheck(int index, const Node& output, v1::Metric* metric)
      : where_(absl::StrCat("metrics[", index, "].")),
        layer_(output.name),
        outputs_(output.output.back()),
        masked_(output.mask >= 0),
        metric_(*metric) {}

  absl::Status Check() {
    const v1::Metric::Kind kind = metric_.kind();
    if (kind == v1::Metric::METRIC_UNSPECIFIED || !v1::Metric::Kind_IsValid(kind)) {
      return Bad(where_, "kind: missing or not known; use ACCURACY, TOP_K_ACCURACY, MEAN_ABSOLUTE_ERROR, AUC, say");
    }
    family_ = FamilyOf(kind);
    CAIRN_RETURN_IF_ERROR(CheckFields());
    CAIRN_RETURN_IF_ERROR(CheckName());
    CAIRN_RETURN_IF_ERROR(CheckK());
    if (metric_.has_threshold() && !std::isfinite(metric_.threshold())) {
      return Bad(where_, "threshold: not finite; use 0.5, say");
    }
    if (metric_.has_class_id() && (metric_.class_id() < 0 || metric_.class_id() >= outputs_)) {
      return Bad(where_, "class_id: ", metric_.class_id(), " is not one of the model's outputs 0 .. ", outputs_ - 1);
    }
    switch (family_) {
      case MetricFamily::kThresholds: return CheckThresholds();
      case MetricFamily::kScores: return CheckScores();
      case MetricFamily::kIntersections: return CheckIntersections();
      case MetricFamily::kR2: return TakeClasses();
      default: return CheckMean();
    }
  }

 private:
  bool Is(std::initializer_list<v1::Metric::Kind> kinds) const {
    return std::find(kinds.begin(), kinds.end(), metric_.kind()) != kinds.end();
  }

  // For an output with masked steps, or an ignored class, the mean is over all rows that count, of all examples
  // together.
  bool OverPositions() const { return masked_ && family_ == MetricFamily::kMean; }
  bool CountsRows() const { return OverPositions() || (metric_.has_ignore_class() && family_ == MetricFamily::kMean); }

  // Checks each field against the kinds that have it, so that none is ignored silently.
  absl::Status CheckFields() const {
    using M = v1::Metric;
    const bool counts = family_ == MetricFamily::kCount, positives = family_ == MetricFamily::kPositives;
    const bool entropy = Is({M::BINARY_CROSSENTROPY, M::CATEGORICAL_CROSSENTROPY, M::SPARSE_CATEGORICAL_CROSSENTROPY});
    const bool scores = family_ == MetricFamily::kScores;
    const bool own_classes = family_ == MetricFamily::kIntersections || scores || family_ == MetricFamily::kR2;
    const struct {
      const char* field;
      bool set, allowed;
      const char* kinds;
    } fields[] = {
        {"k", metric_.has_k(), Is({M::TOP_K_ACCURACY}) || positives, "TOP_K_ACCURACY, PRECISION and RECALL"},
        {"threshold", metric_.has_threshold(), counts || positives || scores || Is({M::BINARY_ACCURACY, M::BINARY_IOU}),
         "BINARY_ACCURACY, counts, PRECISION, RECALL, F1_SCORE, FBETA_SCORE and BINARY_IOU"},
        {"class_id", metric_.has_class_id(), positives, "PRECISION and RECALL"},
        {"num_classes", metric_.has_num_classes(), own_classes && !Is({M::BINARY_IOU}), "IOU and its kin"},
        {"target_class_ids", metric_.target_class_ids_size() > 0, Is({M::BINARY_IOU, M::IOU, M::ONE_HOT_IOU}),
         "BINARY_IOU, IOU and ONE_HOT_IOU"},
        {"num_thresholds", metric_.has_num_thresholds(), family_ == MetricFamily::kThresholds, "AUC and ..._AT_..."},
        {"curve", metric_.curve() != M::CURVE_UNSPECIFIED, Is({M::AUC}), "AUC"},
        {"summation_method", metric_.summation_method() != M::SUMMATION_UNSPECIFIED, Is({M::AUC}), "AUC"},
        {"average", metric_.average() != M::AVERAGE_UNSPECIFIED, scores || CountsRows(), "F1_SCORE and FBETA_SCORE"},
        {"beta", metric_.has_beta(), Is({M::FBETA_SCORE}), "FBETA_SCORE"},
        {"value", metric_.has_value(), family_ == MetricFamily::kThresholds && !Is({M::AUC}), "..._AT_..."},
        {"from_logits", metric_.from_logits(), entropy || Is({M::AUC}), "cross-entropies and AUC"},
        {"ignore_class", metric_.has_ignore_class(),
         family_ == MetricFamily::kIntersections || Is({M::SPARSE_CATEGORICAL_CROSSENTROPY}),
         "IOU and its kin and SPARSE_CATEGORICAL_CROSSENTROPY"},
        {"label_smoothing", metric_.label_smoothing() != 0, Is({M::BINARY_CROSSENTROPY, M::CATEGORICAL_CROSSENTROPY}),
         "BINARY_CROSSENTROPY and CATEGORICAL_CROSSENTROPY"},
    };
    for (const auto& f : fields) {
      if (f.set && !f.allowed) return Bad(where_, f.field, ": only for ", f.kinds, "; leave it out");
    }
    const float s = metric_.label_smoothing();
    if (!(s >= 0 && s < 1)) return Bad(where_, "label_smoothing: ", s, " is outside [0, 1); use 0.1, say");
    return absl::OkStatus();
  }

  absl::Status CheckName() const {
    const std::string& name = metric_.name();
    const bool plain =
        std::all_of(name.begin(), name.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
    if (plain && name.size() <= kJobNameBytesMax && name != "loss" && name.rfind("val_", 0) != 0)
      return absl::OkStatus();
    return Bad(where_, "name: it may have letters, digits and '_', at most ", kJobNameBytesMax,
               ", and is neither \"loss\" nor begins with val_; choose another");
  }

  absl::Status CheckK() {
    if (metric_.has_k() || metric_.kind() == v1::Metric::TOP_K_ACCURACY) {
      CAIRN_RETURN_IF_ERROR(AtLeastOne(where_ + "k", metric_.has_k(), metric_.k(), absl::StrCat(kTopKDefault)));
      if (!metric_.has_k()) metric_.set_k(kTopKDefault);
      if (metric_.k() > outputs_) {
        return Bad(where_, "k: ", metric_.k(), " is more than the model's ", outputs_, " outputs; use a smaller k");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckThresholds() {
    if (!metric_.has_num_thresholds()) metric_.set_num_thresholds(kThresholdsDefault);
    if (metric_.num_thresholds() < 2 || metric_.num_thresholds() > kMetricSumsMax / 2) {
      return Bad(where_, "num_thresholds: ", metric_.num_thresholds(), " is not within 2 .. ", kMetricSumsMax / 2,
                 "; use ", kThresholdsDefault, ", or leave it out");
    }
    if (!v1::Metric::Curve_IsValid(metric_.curve())) return Bad(where_, "curve: not known; use ROC or PR");
    if (!v1::Metric::Summation_IsValid(metric_.summation_method())) {
      return Bad(where_, "summation_method: not known; use INTERPOLATION, MINORING or MAJORING");
    }
    if (metric_.kind() == v1::Metric::AUC) return absl::OkStatus();
    if (metric_.has_value() && metric_.value() >= 0 && metric_.value() <= 1) return absl::OkStatus();
    return Bad(where_, "value: ", metric_.has_value() ? absl::StrCat(metric_.value(), " is outside [0, 1]") : "missing",
               "; use 0.9, say");
  }

  absl::Status CheckScores() {
    if (metric_.average() == v1::Metric::AVERAGE_UNSPECIFIED || !v1::Metric::Average_IsValid(metric_.average())) {
      return Bad(where_, "average: missing or not known; a figure is one number: use MACRO, MICRO or WEIGHTED");
    }
    if (metric_.kind() == v1::Metric::FBETA_SCORE) {
      if (!metric_.has_beta()) metric_.set_beta(1);
      if (!(metric_.beta() > 0) || !std::isfinite(metric_.beta())) {
        return Bad(where_, "beta: ", metric_.beta(), " is not positive; use 1, say");
      }
    }
    return TakeClasses();
  }

  // One figure for each output; three sums for each.
  absl::Status TakeClasses() {
    if (metric_.has_num_classes() && metric_.num_classes() != outputs_) {
      return Bad(where_, "num_classes: ", metric_.num_classes(), ", but the model has ", outputs_,
                 " outputs; leave num_classes out");
    }
    if (outputs_ > kMetricSumsMax / 3) {
      return Bad(where_, "kind: ", v1::Metric::Kind_Name(metric_.kind()), " has three sums for each of the ", outputs_,
                 " outputs of layer \"", layer_, "\", and at most ", kMetricSumsMax,
                 " go with an update; leave it out, or use at most ", kMetricSumsMax / 3, " outputs");
    }
    metric_.set_num_classes(static_cast<int32_t>(outputs_));
    return absl::OkStatus();
  }

  absl::Status CheckIntersections() {
    const bool binary = metric_.kind() == v1::Metric::BINARY_IOU;
    if (!binary) {
      if (outputs_ < 2) {
        return Bad(where_, "kind: ", v1::Metric::Kind_Name(metric_.kind()),
                   " needs an output for each class; use BINARY_IOU for one output");
      }
      CAIRN_RETURN_IF_ERROR(TakeClasses());
      if (Is({v1::Metric::IOU, v1::Metric::ONE_HOT_IOU}) && metric_.target_class_ids().empty()) {
        return Bad(where_, "target_class_ids: missing; name the classes, or use MEAN_IOU for all");
      }
    }
    const int64_t classes = binary ? 2 : outputs_;
    for (const int32_t id : metric_.target_class_ids()) {
      if (id < 0 || id >= classes) {
        return Bad(where_, "target_class_ids: ", id, " is not one of the classes 0 .. ", classes - 1);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckMean() {
    if (CountsRows()) {
      if (metric_.average() != v1::Metric::AVERAGE_UNSPECIFIED && metric_.average() != v1::Metric::MICRO) {
        return Bad(where_, "average: of layer \"", layer_, "\", which has ",
                   masked_ ? "masked steps" : "an ignore_class", ", it is MICRO; leave it out");
      }
      metric_.set_average(v1::Metric::MICRO);
    }
    const bool classes = Is({v1::Metric::CATEGORICAL_ACCURACY, v1::Metric::SPARSE_CATEGORICAL_ACCURACY,
                             v1::Metric::CATEGORICAL_CROSSENTROPY, v1::Metric::SPARSE_CATEGORICAL_CROSSENTROPY});
    if (Is({v1::Metric::PEARSON_CORRELATION, v1::Metric::CONCORDANCE_CORRELATION}) && outputs_ == 1) {
      return Bad(where_, "kind: ", v1::Metric::Kind_Name(metric_.kind()),
                 " correlates the outputs of an example, but layer \"", layer_, "\" gives one; use R2_SCORE, say");
    }
    if (!classes || outputs_ > 1) return absl::OkStatus();
    return Bad(where_, "kind: ", v1::Metric::Kind_Name(metric_.kind()),
               " needs an output for each class; use BINARY_ACCURACY or BINARY_CROSSENTROPY for one output");
  }

  const std::string where_, layer_;
  const int64_t outputs_;
  const bool masked_;
  v1::Metric& metric_;
  MetricFamily family_ = MetricFamily::kMean;
};

}  // namespace

absl::Status CheckMetricsBeside(v1::Loss::Kind loss, int metrics) {
  if (metrics == 0 || (loss != v1::Loss::CTC && loss != v1::Loss::CIRCLE)) return absl::OkStatus();
  return Bad("metrics[0]: no metric compares what loss ", v1::Loss::Kind_Name(loss),
             " does: ", loss == v1::Loss::CTC ? "sequences of open length" : "embeddings with classes",
             "; leave metrics out, val_loss is there");
}

absl::Status CheckMetricsOf(google::protobuf::RepeatedPtrField<v1::Metric>* metrics, const Node& output) {
  for (int i = 0; i < metrics->size(); ++i) CAIRN_RETURN_IF_ERROR(MetricCheck(i, output, metrics->Mutable(i)).Check());
  return absl::OkStatus();
}

absl::Status CheckMetrics(v1::JobSpec* spec, const Graph& graph) {
  CAIRN_RETURN_IF_ERROR(CheckMetricsBeside(spec->loss().kind(), spec->metrics_size()));
  if (spec->metrics_size() > kMetricsMax) {
    return Bad("metrics: ", spec->metrics_size(), " of them; at most ", kMetricsMax, " are allowed");
  }
  for (int i = 0; i < spec->metrics_size(); ++i) {
    CAIRN_RETURN_IF_ERROR(MetricCheck(i, graph.output(), spec->mutable_metrics(i)).Check());
    if (MetricSumCount(*spec) <= kMetricSumsMax) continue;
    return Bad("metrics[", i, "]: with the ones before it, it is made of ", MetricSumCount(*spec),
               " sums, and at most ", kMetricSumsMax,
               " go with an update; leave it out, or lower num_thresholds of AUC and its kin");
  }
  return absl::OkStatus();
}

}  // namespace cairn
