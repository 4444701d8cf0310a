// Layers without windows and variables that keep, scale, drop or move numbers.
#include <algorithm>
#include <optional>

#include "common/model/activity.h"
#include "worker/backend/affine.h"
#include "worker/backend/noise.h"
#include "worker/backend/places.h"
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

// By place: Normalization, Rescaling by channel.
absl::Status Shift(const Pass& p) {
  AffineFactors<double> f;
  FillAffineFactors(p.node(), p.variable("mean"), p.variable("variance"), &f);
  const std::vector<int32_t> places = RepeatedPlaces(AffineShape(p.node()), p.shape());
  for (size_t i = 0; i < p.y().size(); ++i) {
    const size_t at = static_cast<size_t>(places[i % places.size()]);
    p.y()[i] = (p.x()[i] - f.shift[at]) * f.scale[at] + f.offset[at];
  }
  return absl::OkStatus();
}

void ShiftBackward(const Pass& p) {
  AffineFactors<double> f;
  FillAffineFactors(p.node(), p.variable("mean"), p.variable("variance"), &f);
  const std::vector<int32_t> places = RepeatedPlaces(AffineShape(p.node()), p.shape());
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i] += p.dy()[i] * f.scale[places[i % places.size()]];
}

absl::Status Rescale(const Pass& p) {
  if (IsAffine(p.node())) return Shift(p);
  const v1::Rescaling& r = p.node().layer.rescaling();
  std::transform(p.x().begin(), p.x().end(), p.y().begin(), [&](double v) { return v * r.scale() + r.offset(); });
  return absl::OkStatus();
}

void RescaleBackward(const Pass& p) {
  if (IsAffine(p.node())) return ShiftBackward(p);
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i] += p.dy()[i] * p.node().layer.rescaling().scale();
}

// Kept: for each number its factor, 1 where nothing is drawn.
absl::Status Disturb(const Pass& p) {
  std::vector<float>& mask = p.here().mask;
  mask.assign(p.y().size(), 1.0f);
  std::copy(p.x().begin(), p.x().end(), p.y().begin());
  const std::optional<LayerNoise> noise = NoiseOf(p.node());
  if (p.training() == nullptr || !noise.has_value()) return absl::OkStatus();
  const size_t drawn = static_cast<size_t>(NumElements(noise->shape));
  std::vector<float> factors(static_cast<size_t>(p.examples()) * drawn), offsets(factors.size());
  FillNoise(*p.training(), p.node().id, *noise, absl::MakeSpan(factors), absl::MakeSpan(offsets));
  const std::vector<int32_t> places = RepeatedPlaces(noise->shape, p.shape());
  for (size_t i = 0; i < p.y().size(); ++i) {
    const size_t at = i / places.size() * drawn + static_cast<size_t>(places[i % places.size()]);
    mask[i] = factors[at];
    p.y()[i] = p.x()[i] * factors[at] + offsets[at];
  }
  return absl::OkStatus();
}

void DisturbBackward(const Pass& p) {
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i] += p.dy()[i] * p.here().mask[i];
}

void ActivityBackward(const Pass& p) {
  const ActivityFactors f = ActivityFactorsOf(p.node());
  for (size_t i = 0; i < p.dy().size(); ++i) {
    const double x = p.x()[i], sign = static_cast<double>(x > 0) - static_cast<double>(x < 0);
    p.dx()[i] += p.dy()[i] + f.l1 * sign + 2 * f.l2 * x;
  }
}

absl::Status Repeat(const Pass& p) {
  const size_t features = static_cast<size_t>(p.shape()[0]), row = static_cast<size_t>(p.node().output[0]) * features;
  for (size_t i = 0; i < p.y().size(); ++i) p.y()[i] = p.x()[i / row * features + i % features];
  return absl::OkStatus();
}

void RepeatBackward(const Pass& p) {
  const size_t features = static_cast<size_t>(p.shape()[0]), row = static_cast<size_t>(p.node().output[0]) * features;
  for (size_t i = 0; i < p.dy().size(); ++i) p.dx()[i / row * features + i % features] += p.dy()[i];
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

constexpr Layer kLayers[] = {
    {LayerKind::kInput, Keep, KeepBackward},
    {LayerKind::kFlatten, Keep, KeepBackward},
    {LayerKind::kReshape, Keep, KeepBackward},
    {LayerKind::kNormalization, Shift, ShiftBackward},
    {LayerKind::kRescaling, Rescale, RescaleBackward},
    {LayerKind::kDropout, Disturb, DisturbBackward},
    {LayerKind::kSpatialDropout1D, Disturb, DisturbBackward},
    {LayerKind::kSpatialDropout2D, Disturb, DisturbBackward},
    {LayerKind::kSpatialDropout3D, Disturb, DisturbBackward},
    {LayerKind::kAlphaDropout, Disturb, DisturbBackward},
    {LayerKind::kGaussianNoise, Disturb, DisturbBackward},
    {LayerKind::kGaussianDropout, Disturb, DisturbBackward},
    {LayerKind::kActivityRegularization, Keep, ActivityBackward},
    {LayerKind::kRepeatVector, Repeat, RepeatBackward},
    {LayerKind::kPReLU, BendByAlpha, BendByAlphaBackward},
    {LayerKind::kPermute, Permute, PermuteBackward},
};

}  // namespace

absl::Span<const Layer> PlainLayers() { return kLayers; }

}  // namespace cairn::reference
