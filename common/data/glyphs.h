// A generated data set: ten classes of drawn digits, 28x28 grey. The strokes, slant, size, position, pen, clutter and
// noise vary from picture to picture.
//
// It is a substitute for MNIST on machines without a network. A picture is a pure function of (seed, split, index): a
// larger data set begins with the same pictures.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/data/limits.h"

namespace cairn {

inline constexpr int kGlyphSide = 28;
inline constexpr int kGlyphPixels = kGlyphSide * kGlyphSide;
inline constexpr int kGlyphClasses = 10;

// Draws picture `index` of split 0 (train) or 1 (test) and returns its class.
int DrawGlyph(uint64_t seed, uint32_t split, uint32_t index, absl::Span<uint8_t> pixels);

// Writes an IDX data set with MNIST's file names, gzip-compressed, to `dir` (created if needed; existing files are
// replaced). Counts must be in [1, kGlyphsMax]. Errors: INVALID_ARGUMENT (counts), UNAVAILABLE (the disk; names the
// file).
absl::Status WriteGlyphs(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed);

}  // namespace cairn
