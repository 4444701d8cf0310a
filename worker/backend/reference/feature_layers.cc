// Layers on the last axis: dense, embedding, attention, normalizations.
#include <algorithm>
#include <cmath>

#include "worker/backend/dropout.h"
#include "worker/backend/embedding.h"
#include "worker/backend/reference/reference_layer.h"
#include "worker/backend/rows.h"

namespace cairn::reference {
namespace {

absl::Status Project(const Pass& p) {
  Dense(p.shape().back(), p.node().output.back(), p.x(), p.variable("kernel"), p.variable("bias"), p.y());
  return absl::OkStatus();
}

void ProjectBackward(const Pass& p) {
  DenseBackward(p.shape().back(), p.node().output.back(), p.x(), p.variable("kernel"), p.dy(),
                {.x = p.dx(), .kernel = p.gradient("kernel"), .bias = p.gradient("bias")});
}

NormalizationGradients GradientsOf(const Pass& p) {
  return {.x = p.dx(), .gamma = p.gradient("gamma"), .beta = p.gradient("beta")};
}

Normalizer NormalizerOf(const Pass& p, In mean, In variance) {
  return {.mean = mean,
          .variance = variance,
          .epsilon = p.node().layer.batch_normalization().epsilon(),
          .gamma = p.variable("gamma"),
          .beta = p.variable("beta")};
}

// Kept: mean and variance of the batch, if it is normalized by them. A frozen layer uses the moving statistics.
absl::Status NormalizeBatch(const Pass& p) {
  std::vector<std::vector<double>>& kept = p.here().kept;
  kept.clear();
  if (p.training() != nullptr && p.node().trainable) {
    BatchStatistics statistics = Statistics(p.shape().back(), p.x());
    kept = {std::move(statistics.mean), std::move(statistics.variance)};
  }
  const In mean = kept.empty() ? p.variable("moving_mean") : In(kept[0]);
  const In variance = kept.empty() ? p.variable("moving_variance") : In(kept[1]);
  BatchNormalization(p.x(), NormalizerOf(p, mean, variance), p.y());
  return absl::OkStatus();
}

void NormalizeBatchBackward(const Pass& p) {
  if (p.here().kept.empty()) {
    const Normalizer by = NormalizerOf(p, p.variable("moving_mean"), p.variable("moving_variance"));
    return ConstantBatchNormalizationBackward(p.x(), by, p.dy(), GradientsOf(p));
  }
  const BatchStatistics statistics{p.here().kept[0], p.here().kept[1]};
  BatchNormalizationBackward(p.x(), NormalizerOf(p, statistics.mean, statistics.variance), p.dy(), GradientsOf(p));
  const Out mean = p.gradient("moving_mean"), variance = p.gradient("moving_variance");
  for (size_t c = 0; c < mean.size(); ++c) {
    mean[c] = static_cast<double>(p.examples()) * statistics.mean[c];
    variance[c] = static_cast<double>(p.examples()) * statistics.variance[c];
  }
}

// Each row is an example with one group.
ChannelGroups RowsOf(const Pass& p) {
  const v1::LayerNormalization& norm = p.node().layer.layer_normalization();
  const int64_t row = RowNumbers(norm, p.shape());
  return {
      .examples = static_cast<int64_t>(p.x().size()) / row, .channels = row, .groups = 1, .epsilon = norm.epsilon()};
}

absl::Status NormalizeLayer(const Pass& p) {
  GroupNormalization(RowsOf(p), p.x(), p.variable("gamma"), p.variable("beta"), p.y());
  return absl::OkStatus();
}

void NormalizeLayerBackward(const Pass& p) {
  GroupNormalizationBackward(RowsOf(p), p.x(), p.variable("gamma"), p.dy(), GradientsOf(p));
}

// x / sqrt(mean(x^2) + epsilon) * scale (Zhang and Sennrich 2019, equation 4).
absl::Status NormalizeRootMeanSquare(const Pass& p) {
  const size_t row = static_cast<size_t>(p.shape().back());
  const In scale = p.variable("scale");
  for (size_t begin = 0; begin < p.x().size(); begin += row) {
    double squares = 0;
    for (size_t i = 0; i < row; ++i) squares += p.x()[begin + i] * p.x()[begin + i];
    const double factor =
        1 / std::sqrt(squares / static_cast<double>(row) + p.node().layer.rms_normalization().epsilon());
    for (size_t i = 0; i < row; ++i) p.y()[begin + i] = p.x()[begin + i] * factor * scale[i];
  }
  return absl::OkStatus();
}

void NormalizeRootMeanSquareBackward(const Pass& p) {
  const size_t row = static_cast<size_t>(p.shape().back());
  const In scale = p.variable("scale");
  const Out dscale = p.gradient("scale");
  for (size_t begin = 0; begin < p.x().size(); begin += row) {
    double squares = 0, dot = 0;
    for (size_t i = 0; i < row; ++i) squares += p.x()[begin + i] * p.x()[begin + i];
    const double factor =
        1 / std::sqrt(squares / static_cast<double>(row) + p.node().layer.rms_normalization().epsilon());
    for (size_t i = 0; i < row; ++i) {
      dscale[i] += p.dy()[begin + i] * p.x()[begin + i] * factor;
      dot += p.dy()[begin + i] * scale[i] * p.x()[begin + i];
    }
    for (size_t i = 0; i < row; ++i) {
      p.dx()[begin + i] +=
          factor * (p.dy()[begin + i] * scale[i] - p.x()[begin + i] * factor * factor * dot / static_cast<double>(row));
    }
  }
}

// Divides each row by its length, which counts as at least kUnitLengthMin.
absl::Status NormalizeLength(const Pass& p) {
  const size_t row = static_cast<size_t>(RowNumbers(p.node().layer.unit_normalization(), p.shape()));
  for (size_t begin = 0; begin < p.x().size(); begin += row) {
    double squares = 0;
    for (size_t i = 0; i < row; ++i) squares += p.x()[begin + i] * p.x()[begin + i];
    const double length = std::max(std::sqrt(squares), kUnitLengthMin);
    for (size_t i = 0; i < row; ++i) p.y()[begin + i] = p.x()[begin + i] / length;
  }
  return absl::OkStatus();
}

void NormalizeLengthBackward(const Pass& p) {
  const size_t row = static_cast<size_t>(RowNumbers(p.node().layer.unit_normalization(), p.shape()));
  for (size_t begin = 0; begin < p.x().size(); begin += row) {
    double squares = 0, dot = 0;
    for (size_t i = 0; i < row; ++i) {
      squares += p.x()[begin + i] * p.x()[begin + i];
      dot += p.x()[begin + i] * p.dy()[begin + i];
    }
    const double length = std::sqrt(squares), counted = std::max(length, kUnitLengthMin);
    const double along = length > kUnitLengthMin ? dot / squares : 0;
    for (size_t i = 0; i < row; ++i) {
      p.dx()[begin + i] += (p.dy()[begin + i] - p.x()[begin + i] * along) / counted;
    }
  }
}

ChannelGroups GroupsOf(const Pass& p) {
  const v1::GroupNormalization& norm = p.node().layer.group_normalization();
  return {.examples = p.examples(), .channels = p.shape().back(), .groups = norm.groups(), .epsilon = norm.epsilon()};
}

absl::Status NormalizeGroups(const Pass& p) {
  GroupNormalization(GroupsOf(p), p.x(), p.variable("gamma"), p.variable("beta"), p.y());
  return absl::OkStatus();
}

void NormalizeGroupsBackward(const Pass& p) {
  GroupNormalizationBackward(GroupsOf(p), p.x(), p.variable("gamma"), p.dy(), GradientsOf(p));
}

absl::Status Embed(const Pass& p) {
  const std::vector<double>& ids = p.x();
  const In table = p.variable("embeddings");
  const int64_t rows = p.node().layer.embedding().input_dim(), width = p.node().output.back();
  p.here().steps.assign(ids.size(), 1.0f);
  for (size_t i = 0; i < ids.size(); ++i) {
    const float id = static_cast<float>(ids[i]);
    const int64_t row = EmbeddingRow(id, rows);
    if (row < 0) return BadEmbeddingId(p.node(), static_cast<int64_t>(i) / NumElements(p.shape()), id);
    for (int64_t c = 0; c < width; ++c) p.y()[i * width + c] = table[row * width + c];
    if (row == 0) p.here().steps[i] = 0;  // padding, of an Embedding with mask_zero
  }
  return absl::OkStatus();
}

// The ids have no gradient.
void EmbedBackward(const Pass& p) {
  const Out table = p.gradient("embeddings");
  const int64_t width = p.node().output.back();
  for (size_t i = 0; i < p.dy().size(); ++i) {
    table[static_cast<int64_t>(p.x()[i / width]) * width + i % width] += p.dy()[i];
  }
}

// Steps in which some number is not mask_value count; the numbers of the others become 0.
absl::Status Mask(const Pass& p) {
  const int64_t width = p.shape().back();
  const double value = p.node().layer.masking().mask_value();
  std::vector<float>& steps = p.here().steps;
  steps.assign(p.x().size() / width, 0.0f);
  for (size_t i = 0; i < p.x().size(); ++i) {
    if (p.x()[i] != value) steps[i / width] = 1;
  }
  for (size_t i = 0; i < p.x().size(); ++i) p.y()[i] = steps[i / width] * p.x()[i];
  return absl::OkStatus();
}

void MaskBackward(const Pass& p) {
  const int64_t width = p.shape().back();
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i] += p.here().steps[i / width] * p.dy()[i];
}

// Inputs: query, value and, if it is not the value, key. Kept: the projections, the softmax, and the heads before the
// last projection.
enum Kept { kQuery, kKey, kValue, kWeights, kHeads, kKeptCount };

// Whether a step of an input counts.
bool Counts(const Pass& p, size_t input, int64_t example, int64_t step) {
  const absl::Span<const float> mask = p.step_mask(input);
  return mask.empty() || mask[example * p.shape(input)[0] + step] != 0;
}

// Which key of which example each query sees; the masks of query, value and key are combined as in Keras. Empty: all.
std::vector<float> SeenKeys(const Pass& p, const AttentionShape& a) {
  const size_t key = p.inputs() - 1;
  if (p.step_mask(0).empty() && p.step_mask(1).empty() && p.step_mask(key).empty()) return {};
  std::vector<float> seen;
  for (int64_t e = 0; e < a.examples; ++e) {
    for (int64_t t = 0; t < a.queries; ++t) {
      for (int64_t s = 0; s < a.keys; ++s) {
        seen.push_back(Counts(p, 0, e, t) && Counts(p, 1, e, s) && Counts(p, key, e, s) ? 1.0f : 0.0f);
      }
    }
  }
  return seen;
}

AttentionShape AttentionOf(const Pass& p) {
  const v1::MultiHeadAttention& mha = p.node().layer.multi_head_attention();
  return {p.examples(),  p.shape(0)[0],   p.shape(1)[0],        mha.num_heads(),
          mha.key_dim(), mha.value_dim(), mha.use_causal_mask()};
}

// Of what is kept.
AttentionInputs InputsOf(const Pass& p) {
  const std::vector<std::vector<double>>& kept = p.here().kept;
  return {.q = kept[kQuery], .k = kept[kKey], .v = kept[kValue], .mask = p.here().mask};
}

absl::Status Attend(const Pass& p) {
  const AttentionShape a = AttentionOf(p);
  std::vector<std::vector<double>>& kept = p.here().kept;
  kept.assign(kKeptCount, {});
  const auto project = [&](size_t input, int64_t width, const char* kernel, const char* bias, Kept to) {
    const int64_t in = p.shape(input)[1];
    kept[to].assign(static_cast<int64_t>(p.x(input).size()) / in * width, 0.0);
    Dense(in, width, p.x(input), p.variable(kernel), p.variable(bias), absl::MakeSpan(kept[to]));
  };
  project(0, a.heads * a.key_dim, "query/kernel", "query/bias", kQuery);
  project(p.inputs() - 1, a.heads * a.key_dim, "key/kernel", "key/bias", kKey);
  project(1, a.heads * a.value_dim, "value/kernel", "value/bias", kValue);
  std::vector<float>& mask = p.here().mask;
  mask.assign(a.scores(), 1.0f);
  const float rate = p.node().layer.multi_head_attention().dropout();
  if (p.training() != nullptr && rate > 0) {
    DropoutMask(*p.training(), p.node().id, rate, p.node().layer.multi_head_attention().seed())
        .Fill(0, absl::MakeSpan(mask));
  }
  kept[kWeights].assign(a.scores(), 0.0);
  kept[kHeads].assign(p.examples() * a.queries * a.heads * a.value_dim, 0.0);
  Attention(a, SeenKeys(p, a), InputsOf(p), absl::MakeSpan(kept[kWeights]), absl::MakeSpan(kept[kHeads]));
  Dense(a.heads * a.value_dim, p.node().output[1], kept[kHeads], p.variable("attention_output/kernel"),
        p.variable("attention_output/bias"), p.y());
  return absl::OkStatus();
}

void AttendBackward(const Pass& p) {
  const AttentionShape a = AttentionOf(p);
  const std::vector<std::vector<double>>& kept = p.here().kept;
  std::vector<double> dheads(kept[kHeads].size(), 0.0), dquery(kept[kQuery].size(), 0.0), dkey(kept[kKey].size(), 0.0),
      dvalue(kept[kValue].size(), 0.0);
  DenseBackward(a.heads * a.value_dim, p.node().output[1], kept[kHeads], p.variable("attention_output/kernel"), p.dy(),
                {.x = absl::MakeSpan(dheads),
                 .kernel = p.gradient("attention_output/kernel"),
                 .bias = p.gradient("attention_output/bias")});
  AttentionBackward(a, InputsOf(p), kept[kWeights], dheads,
                    {.q = absl::MakeSpan(dquery), .k = absl::MakeSpan(dkey), .v = absl::MakeSpan(dvalue)});
  const auto project = [&](size_t input, int64_t width, const char* kernel, const char* bias, In to) {
    DenseBackward(p.shape(input)[1], width, p.x(input), p.variable(kernel), to,
                  {.x = p.dx(input), .kernel = p.gradient(kernel), .bias = p.gradient(bias)});
  };
  project(0, a.heads * a.key_dim, "query/kernel", "query/bias", dquery);
  project(p.inputs() - 1, a.heads * a.key_dim, "key/kernel", "key/bias", dkey);
  project(1, a.heads * a.value_dim, "value/kernel", "value/bias", dvalue);
}

constexpr Layer kLayers[] = {
    {LayerKind::kDense, Project, ProjectBackward},
    {LayerKind::kBatchNormalization, NormalizeBatch, NormalizeBatchBackward},
    {LayerKind::kLayerNormalization, NormalizeLayer, NormalizeLayerBackward},
    {LayerKind::kGroupNormalization, NormalizeGroups, NormalizeGroupsBackward},
    {LayerKind::kRMSNormalization, NormalizeRootMeanSquare, NormalizeRootMeanSquareBackward},
    {LayerKind::kUnitNormalization, NormalizeLength, NormalizeLengthBackward},
    {LayerKind::kEmbedding, Embed, EmbedBackward},
    {LayerKind::kMultiHeadAttention, Attend, AttendBackward},
    {LayerKind::kMasking, Mask, MaskBackward},
};

}  // namespace

absl::Span<const Layer> FeatureLayers() { return kLayers; }

}  // namespace cairn::reference
