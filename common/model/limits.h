// Every limit of models and of what a job says, beside those of the whole system (common/base/limits.h), its reason,
// and how the limits depend on one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/limits.h"

namespace cairn {

// ---- a job ----

// As a label of Kubernetes and a host name have it.
inline constexpr size_t kJobNameBytesMax = 63;
// PATH_MAX of Linux.
inline constexpr size_t kPathBytesMax = 4096;
inline constexpr int32_t kCheckpointsKeptMax = 10'000;
inline constexpr int kCallbacksMax = 32;
inline constexpr int64_t kSaveStepsMax = int64_t{1} << 40;
// Sums of two and multiples stay exact.
inline constexpr int64_t kScheduleStepsMax = int64_t{1} << 40;
// Of a number in a path such as {epoch:03d}.
inline constexpr int kTemplateWidthMax = 64;
// A double has no more digits.
inline constexpr int kTemplatePrecisionMax = 17;
inline constexpr int kAugmentationsMax = 64;
// Of an Equalization: as many as a 16-bit picture has shades.
inline constexpr int kEqualizationBinsMax = 1 << 16;
inline constexpr int32_t kPrefetchMax = 1024;
inline constexpr size_t kFeatureNameBytesMax = 4096;
inline constexpr int kFeatureDimensionsMax = 8;

// ---- training ----

// Figures of all epochs that a partition keeps because the coordinator has not stored them yet: 2 epochs of
// kMetricSumsMax sums (common/tensor/limits.h), 26 of 32, 128 of one. An image's header has room for them beside the
// table of sequences.
inline constexpr size_t kFiguresBytesMax = size_t{16} << 10;
inline constexpr uint64_t kEpochExamplesMax = uint64_t{1} << 48;
// Records of norms of one partition: no number of bytes means both kinds of them.
inline constexpr size_t kClipRecordsMax = 8;
inline constexpr float kLossScaleMax = 1 << 24;
// A redraw is needed with probability 0.0455: after so many the chance is below 1e-80.
inline constexpr uint32_t kInitializerRedrawsMax = 64;

// ---- layers ----

// Keras has no limit; names of scopes within scopes are this long at most.
inline constexpr size_t kLayerNameBytesMax = 512;
// Kernel sizes, strides, dilations, factors and pads: far beyond any use, and small enough that window arithmetic stays
// within int64_t.
inline constexpr int64_t kWindowMax = int64_t{1} << 20;
// Of one example in a layer: [depth, height, width, channels].
inline constexpr size_t kLayerDimensionsMax = 4;
// A window's: depth, height and width.
inline constexpr int kWindowAxesMax = 3;
static_assert(kWindowAxesMax + 1 == kLayerDimensionsMax, "the axes of a window, and the channels");
// Of a tensor whose axes change places: the kernels take so many, and the examples.
inline constexpr size_t kPermutedAxesMax = 3;
// Ids come as float32, which has every whole number up to this one.
inline constexpr int32_t kEmbeddingIdsMax = 1 << 24;
// A vector that is normalized counts as at least so long: keras.config.epsilon().
inline constexpr float kVectorLengthMin = 1e-7f;
// Means, variances or scales that a layer is given.
inline constexpr int kNormalizationNumbersMax = 1 << 20;
inline constexpr size_t kModelNameShownBytesMax = 64;
inline constexpr int32_t kReadyMadeClassesMax = 1 << 24;
// Pixels.
inline constexpr int32_t kReadyMadeSideMax = 1 << 16;

// ---- programs (model.external) ----

// Names of programs, versions and figures: as a job's.
inline constexpr size_t kProgramNameBytesMax = kJobNameBytesMax;
// Handed to the program; stored with the job.
inline constexpr size_t kProgramConfigBytesMax = size_t{64} << 10;
// A job is one message; the largest networks that people write have a tenth of them.
inline constexpr int kProgramVariablesMax = 1 << 14;
// Of a split: as many as a coordinator counts.
inline constexpr int64_t kExternalExamplesMax = int64_t{1} << 40;
// Of a variable.
inline constexpr size_t kVariableAxesMax = 8;

// ---- Keras' configs, ONNX's graphs ----

inline constexpr int kKerasJsonDepthMax = 64;
// Of a value in an error.
inline constexpr size_t kKerasShownBytesMax = 80;
// Numbers in one option.
inline constexpr int kKerasListMax = 64;
inline constexpr int kOnnxNodesMax = 1 << 16;
// The oldest and the newest opset that are read.
inline constexpr int64_t kOnnxOpsetMin = 7, kOnnxOpsetMax = 25;
// Of a value, batch included.
inline constexpr size_t kOnnxAxesMax = 16;
// Of all constants that are computed.
// Multiplications that make an ORTHOGONAL variable: of a matrix rows * columns * the smaller one. An LSTM of 2048 units
// has 2^35; about ten seconds.
inline constexpr int64_t kOrthogonalWorkMax = int64_t{1} << 35;
inline constexpr int64_t kOnnxFoldedNumbersMax = int64_t{1} << 28;

static_assert(kLayerDimensionsMax < kOnnxAxesMax, "every layer's output, with its batch, is a value");
static_assert(kWindowMax * kWindowMax <= INT64_MAX / kWindowMax);
static_assert(kSaveStepsMax <= INT64_MAX / 2 && kScheduleStepsMax <= INT64_MAX / 2);
static_assert(kFiguresBytesMax <= kImageHeaderBytesMax);

}  // namespace cairn
