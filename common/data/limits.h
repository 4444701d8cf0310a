// The limits of data sets, with the reason for each and the relations between them. What exceeds a limit is rejected by
// name.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// ---- files ----

// A deflate stream expands to at most this many times its own size (zlib's technical notes).
inline constexpr uint64_t kDeflateRatioMax = 1032;
// Of a gzip member, its names included: it is read as a whole, for ISA-L forgets a header's flags where it is cut.
inline constexpr size_t kGzipHeaderBytesMax = size_t{128} << 10;
// ISA-L takes a 32-bit length.
inline constexpr size_t kGzipReadBytesMax = size_t{1} << 30;
inline constexpr uint64_t kCifar10FileBytesMax = uint64_t{1} << 31;
inline constexpr uint64_t kCsvBytesMax = uint64_t{8} << 30;
inline constexpr size_t kCsvColumnsMax = 1 << 20;
// Of a file of which only the first two lines are looked at.
inline constexpr size_t kCsvHeadBytesMax = size_t{1} << 20;
inline constexpr size_t kCsvClassesMax = 1000;
inline constexpr int64_t kIdxExampleBytesMax = int64_t{1} << 28;

// ---- pictures ----

// A header of a few bytes may claim any size.
inline constexpr int64_t kPicturePixelsMax = int64_t{1} << 26;
inline constexpr uint64_t kPictureFileBytesMax = uint64_t{256} << 20;
inline constexpr int32_t kImageFolderClassesMax = 100'000;
inline constexpr int32_t kImageFolderSideMax = 8192;
// Keras' default value_range.
inline constexpr float kPixelMax = 255;

// ---- records ----

inline constexpr uint64_t kRecordBytesMax = uint64_t{256} << 20;
// Records of one file: 2 GiB of offsets.
inline constexpr int64_t kRecordsMax = int64_t{1} << 28;
// Files that all RecordFiles together keep open: a data set may have thousands of shards, a process about a thousand
// descriptors. Other files are opened for each record.
inline constexpr int kFilesHeldOpenMax = 256;
inline constexpr int kShardsMax = 100'000;
inline constexpr size_t kTfFeatureNameBytesMax = 4096;
inline constexpr size_t kVarintBytesMax = 10;
inline constexpr int32_t kTfRecordClassesMax = 100'000;
// Integers below it in a float_list are class indices, as in CSV.
inline constexpr int32_t kTfRecordFloatClassesMax = 1000;
inline constexpr size_t kTfRecordFeaturesShownMax = 20;
// Numbers in one example.
inline constexpr int64_t kTfRecordNumbersMax = int64_t{1} << 26;

// ---- texts ----

inline constexpr size_t kTextBytesMax = size_t{64} << 20;
// Different texts of a data set: their numbers are float32, which represents every integer up to this one.
inline constexpr int64_t kTextsMax = int64_t{1} << 24;

// ---- generated data, samples, read-ahead ----

inline constexpr int kConvertShardsMax = 10'000;
// Pictures of one split.
inline constexpr int64_t kGlyphsMax = 10'000'000;
inline constexpr int kTextWordsMax = 64;
inline constexpr int64_t kSampledExamplesMax = 2000;
// Each one is a file to open and decode.
inline constexpr int64_t kSampledPicturesMax = 200;
inline constexpr int64_t kClassesShownMax = 100;
// Several small batches are decoded per wake-up, at most this many.
inline constexpr int64_t kAheadSmallMax = 32;
// Bytes decoded ahead for all replicas together. Beyond this, Get decodes by itself.
inline constexpr int64_t kAheadBytesMax = int64_t{512} << 20;

static_assert(kSampledPicturesMax <= kSampledExamplesMax);
static_assert(kConvertShardsMax <= kShardsMax, "what is written is read");

}  // namespace cairn
