// Layers without windows and variables that keep, scale, drop or move numbers.
#include <algorithm>

#include "common/model/inner_node.h"
#include "worker/backend/dropout.h"
#include "worker/backend/reference/reference_layer.h"

namespace cairn::reference {
namespace {

absl::Status Keep(const Pass& p) {
  std::copy(p.x().begin(), p.x().end(), p.y().begin());
  return absl::OkStatus();
}

void KeepBackward(const Pass& p) {
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i] += p.dy()[i];
}

absl::Status Rescale(const Pass& p) {
  const v1::Rescaling& r = p.node().layer.rescaling();
  std::transform(p.x().begin(), p.x().end(), p.y().begin(), [&](double v) { return v * r.scale() + r.offset(); });
  return absl::OkStatus();
}

void RescaleBackward(const Pass& p) {
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i] += p.dy()[i] * p.node().layer.rescaling().scale();
}

absl::Status Drop(const Pass& p) {
  std::vector<float>& mask = p.here().mask;
  mask.assign(p.y().size(), 1.0f);
  if (p.training() != nullptr) {
    DropoutMask(*p.training(), p.node().id, p.node().layer.dropout().rate()).Fill(0, absl::MakeSpan(mask));
  }
  for (size_t i = 0; i < p.y().size(); ++i) p.y()[i] = p.x()[i] * mask[i];
  return absl::OkStatus();
}

void DropBackward(const Pass& p) {
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i] += p.dy()[i] * p.here().mask[i];
}

// The factor of number i of a SpatialDropout2D: one for each channel of an example.
size_t ChannelOf(const Pass& p, size_t i) {
  const int64_t channels = p.shape()[2], pixels = p.shape()[0] * p.shape()[1];
  return i / (pixels * channels) * channels + i % channels;
}

absl::Status DropChannels(const Pass& p) {
  std::vector<float>& mask = p.here().mask;
  mask.assign(p.examples() * p.shape()[2], 1.0f);
  if (p.training() != nullptr) {
    DropoutMask(*p.training(), p.node().id, p.node().layer.spatial_dropout2d().rate()).Fill(0, absl::MakeSpan(mask));
  }
  for (size_t i = 0; i < p.y().size(); ++i) p.y()[i] = p.x()[i] * mask[ChannelOf(p, i)];
  return absl::OkStatus();
}

void DropChannelsBackward(const Pass& p) {
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i] += p.dy()[i] * p.here().mask[ChannelOf(p, i)];
}

absl::Status Permute(const Pass& p) {
  const std::vector<int64_t> from = PermutedPlaces(p.examples(), p.shape(), p.node().layer.permute().dims());
  for (size_t i = 0; i < p.y().size(); ++i) p.y()[i] = p.x()[from[i]];
  return absl::OkStatus();
}

void PermuteBackward(const Pass& p) {
  const std::vector<int64_t> from = PermutedPlaces(p.examples(), p.shape(), p.node().layer.permute().dims());
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[from[i]] += p.dy()[i];
}

// For each number of an example the place of its alpha: axes that share one have the size 1 there.
std::vector<int64_t> AlphaPlaces(const Pass& p) {
  Shape shape = p.shape();
  for (const int32_t axis : p.node().layer.prelu().shared_axes()) shape[axis - 1] = 1;
  return BroadcastPlaces(1, shape, p.shape());
}

absl::Status BendByAlpha(const Pass& p) {
  const std::vector<int64_t> places = AlphaPlaces(p);
  const In alpha = p.variable("alpha");
  for (size_t i = 0; i < p.y().size(); ++i) {
    const double x = p.x()[i];
    p.y()[i] = x > 0 ? x : alpha[places[i % places.size()]] * x;
  }
  return absl::OkStatus();
}

// As of Keras' relu(x) - alpha * relu(-x), the gradient at 0 is 0.
void BendByAlphaBackward(const Pass& p) {
  const std::vector<int64_t> places = AlphaPlaces(p);
  const In alpha = p.variable("alpha");
  const Out dalpha = p.gradient("alpha");
  for (size_t i = 0; i < p.dy().size(); ++i) {
    const double x = p.x()[i];
    const int64_t place = places[i % places.size()];
    if (x > 0) p.dx()[i] += p.dy()[i];
    if (x < 0) p.dx()[i] += p.dy()[i] * alpha[place];
    if (x < 0) dalpha[place] += p.dy()[i] * x;
  }
}

// On every step: what the layer within does with its input as a whole.
absl::Status Distribute(const Pass& p) {
  const Node inner = InnerNode(p.node());
  return FindLayer(inner.kind)->forward(p.As(inner));
}

void DistributeBackward(const Pass& p) {
  const Node inner = InnerNode(p.node());
  FindLayer(inner.kind)->backward(p.As(inner));
}

constexpr Layer kLayers[] = {
    {LayerKind::kTimeDistributed, Distribute, DistributeBackward},
    {LayerKind::kInput, Keep, KeepBackward},
    {LayerKind::kFlatten, Keep, KeepBackward},
    {LayerKind::kReshape, Keep, KeepBackward},
    {LayerKind::kActivation, Keep, KeepBackward},
    {LayerKind::kRescaling, Rescale, RescaleBackward},
    {LayerKind::kDropout, Drop, DropBackward},
    {LayerKind::kSpatialDropout2D, DropChannels, DropChannelsBackward},
    {LayerKind::kPReLU, BendByAlpha, BendByAlphaBackward},
    {LayerKind::kPermute, Permute, PermuteBackward},
};

}  // namespace

absl::Span<const Layer> PlainLayers() { return kLayers; }

}  // namespace cairn::reference
