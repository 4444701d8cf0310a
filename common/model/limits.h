// The limits of models and of job specs, in addition to those of the whole system (common/base/limits.h), with the
// reason for each and the relations between them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/limits.h"

namespace cairn {

// ---- a job ----

// The limit of Kubernetes labels and of host names.
inline constexpr size_t kJobNameBytesMax = 63;
// PATH_MAX of Linux.
inline constexpr size_t kPathBytesMax = 4096;
inline constexpr int32_t kCheckpointsKeptMax = 10'000;
inline constexpr int kCallbacksMax = 32;
inline constexpr int64_t kSaveStepsMax = int64_t{1} << 40;
// Keeps sums of two values, and multiples, exact.
inline constexpr int64_t kScheduleStepsMax = int64_t{1} << 40;
// The width of a number in a path such as {epoch:03d}.
inline constexpr int kTemplateWidthMax = 64;
// A double has no more significant digits.
inline constexpr int kTemplatePrecisionMax = 17;
inline constexpr int kAugmentationsMax = 64;
// Bins of an Equalization: as many as a 16-bit image has levels.
inline constexpr int kEqualizationBinsMax = 1 << 16;
inline constexpr int32_t kPrefetchMax = 1024;
inline constexpr size_t kFeatureNameBytesMax = 4096;
inline constexpr int kFeatureDimensionsMax = 8;

// ---- training ----

// The figures that a partition keeps for all epochs that the coordinator has not stored yet: 2 epochs of kMetricSumsMax
// sums (common/tensor/limits.h), 26 of 32 sums, 128 of one sum. An image's header has room for them in addition to the
// table of sequences.
inline constexpr size_t kFiguresBytesMax = size_t{16} << 10;
inline constexpr uint64_t kEpochExamplesMax = uint64_t{1} << 48;
// Norm records of one partition. The limit keeps the byte sizes of the two kinds of records distinct.
inline constexpr size_t kClipRecordsMax = 8;
inline constexpr float kLossScaleMax = 1 << 24;
// Muon: a step multiplies matrices with this many rows on one core of a ps, 5 * 6 * 2^33 operations by default.
inline constexpr int64_t kMuonSideMax = 2048;
inline constexpr int32_t kNewtonSchulzStepsMax = 32;
// Muon's exclude_layers. Searching for all of them in all names takes at most this many steps: a second.
inline constexpr int kNamePatternsMax = 64;
inline constexpr size_t kNamePatternBytesMax = 256;
inline constexpr int64_t kNamePatternMemoryMax = int64_t{1} << 18;
// The instructions of all of them, which are compiled anew for each partition.
inline constexpr int64_t kNamePatternSizeMax = 4096;
inline constexpr int64_t kNamePatternWorkMax = int64_t{1} << 28;
// Adafactor: 1 - step^-8 is 1 in float32 from the 8th step on.
inline constexpr float kBeta2DecayMax = 8;
// A redraw is needed with probability 0.0455; the chance of needing more than this many is below 1e-80.
inline constexpr uint32_t kInitializerRedrawsMax = 64;

// ---- layers ----

// Keras has no limit. This leaves room for nested name scopes.
inline constexpr size_t kLayerNameBytesMax = 512;
// Kernel sizes, strides, dilations, factors and pads: far beyond any use, and small enough that window arithmetic stays
// within int64_t.
inline constexpr int64_t kWindowMax = int64_t{1} << 20;
// Axes of one example in a layer: [depth, height, width, channels].
inline constexpr size_t kLayerDimensionsMax = 4;
// Axes of one example of volumes in steps, [steps, depth, height, width, channels]: of a ConvLSTM3D or a
// TimeDistributed(Conv3D), and of the few layers that may stand beside it (common/model/layers/table.cc).
inline constexpr size_t kSequenceDimensionsMax = kLayerDimensionsMax + 1;
// Passes over a kernel in each step, on each worker and ps.
inline constexpr int32_t kPowerIterationsMax = 100;
// Axes of a window: depth, height and width.
inline constexpr int kWindowAxesMax = 3;
static_assert(kWindowAxesMax + 1 == kLayerDimensionsMax, "the axes of a window, and the channels");
// Axes of a tensor that are permuted: the kernels support this many plus the batch axis.
inline constexpr size_t kPermutedAxesMax = 3;
// Ids are passed as float32, which represents every integer up to this one.
inline constexpr int32_t kEmbeddingIdsMax = 1 << 24;
// Sizes of the groups of tokens that TextVectorization joins, and how many sizes.
inline constexpr int kNgramsMax = 16;
// Vectors shorter than this are normalized as if they had this length: keras.config.epsilon().
inline constexpr float kVectorLengthMin = 1e-7f;
// Means, variances or scales in a layer's fields.
inline constexpr int kNormalizationNumbersMax = 1 << 20;
inline constexpr size_t kModelNameShownBytesMax = 64;
inline constexpr int32_t kReadyMadeClassesMax = 1 << 24;
// In pixels.
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
// Bytes of a value that an error shows.
inline constexpr size_t kKerasShownBytesMax = 80;
// Numbers in one option.
inline constexpr int kKerasListMax = 64;
inline constexpr int kOnnxNodesMax = 1 << 16;
// The oldest and the newest opset that can be read.
inline constexpr int64_t kOnnxOpsetMin = 7, kOnnxOpsetMax = 25;
// Axes of a value, batch included.
inline constexpr size_t kOnnxAxesMax = 16;
// Multiplications needed to make an ORTHOGONAL variable: rows * columns * min(rows, columns) of its matrix. An LSTM of
// 2048 units needs 2^35, which takes about ten seconds.
inline constexpr int64_t kOrthogonalWorkMax = int64_t{1} << 35;
// Numbers in all constants that are computed.
inline constexpr int64_t kOnnxFoldedNumbersMax = int64_t{1} << 28;

static_assert(kSequenceDimensionsMax < kOnnxAxesMax, "every layer's output, with its batch, is a value");
static_assert(kWindowMax * kWindowMax <= INT64_MAX / kWindowMax);
static_assert(kSaveStepsMax <= INT64_MAX / 2 && kScheduleStepsMax <= INT64_MAX / 2);
static_assert(kFiguresBytesMax <= kImageHeaderBytesMax);

}  // namespace cairn
