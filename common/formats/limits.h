// The limits of model and weight files, with the reason for each and the relations between them. What exceeds a limit
// is rejected.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// ---- Keras ----

// ResNet-152 needs less than 1 MiB.
inline constexpr size_t kKerasJsonBytesMax = size_t{16} << 20;
// Depth of nested models.
inline constexpr int kKerasNestingMax = 8;
// Calls of layers and models, with those of models inside models as often as these are called: more than a model of
// kLayersMax (common/base/limits.h) layers can need. A small description may have 100^8.
inline constexpr int kKerasCallsMax = 1 << 14;
// Operations in a chain that computes a mask.
inline constexpr int kKerasMaskDepthMax = 64;
// Inputs of one call.
inline constexpr size_t kKerasInputsMax = 1024;
// Outputs of one call, as of a split.
inline constexpr int kKerasOutputsMax = 1024;
inline constexpr size_t kKerasMetadataBytesMax = size_t{64} << 10;

// Layers in a report on a model.
inline constexpr size_t kReportLayersMax = size_t{1} << 14;

// ---- ONNX ----

// The limit of a protobuf message.
inline constexpr int64_t kOnnxBytesMax = (int64_t{2} << 30) - 1;
// Weights of all tensors in external files: as much as a model of 4 G parameters has.
inline constexpr uint64_t kOnnxExternalBytesMax = uint64_t{16} << 30;
// PyTorch writes one file per tensor.
inline constexpr size_t kOnnxExternalFilesMax = 512;

// ---- safetensors ----

// The reference implementation's limit.
inline constexpr size_t kSafetensorsHeaderBytesMax = size_t{100} << 20;
// Where the header alone is read: so much at first, which holds the header of most models, some 500 tensors.
inline constexpr size_t kSafetensorsFirstReadBytes = size_t{64} << 10;
// {"name": {"shape": [
inline constexpr int kSafetensorsHeaderDepthMax = 3;

// ---- HDF5 ----

inline constexpr int kHdf5DimensionsMax = 8;
// Memory of the library in addition to the file and the numbers.
inline constexpr size_t kHdf5LibraryBytesMax = size_t{256} << 20;
inline constexpr int kHdf5FiltersMax = 8;
// Names of all layers, or of one layer's weights, in a legacy .h5 file.
inline constexpr size_t kHdf5NamesBytesMax = size_t{4} << 20;
// Parts of a long list of names, which Keras splits if it is larger than an attribute may be.
inline constexpr int kHdf5NamePartsMax = 1024;

// ---- all ----

// Messages within messages in protobuf's text format: as deep as the binary format has them. The parser has no limit of
// its own, and a text that is deeper than the stack.
inline constexpr int kTextDepthMax = 100;
// Mistakes in one text.
inline constexpr size_t kTextErrorsShownMax = 5;

// Numbers of a trained model hardly compress.
inline constexpr uint64_t kGrowthMax = 100;
// The error message of a forked process (apart.h).
inline constexpr size_t kApartMessageBytesMax = 16 << 10;

}  // namespace cairn
