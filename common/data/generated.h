// Generated data sets besides the glyphs (glyphs.h): what stands in for CIFAR-10 and for short texts where no network
// is. Each example is a pure function of (seed, split, index).
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/data/limits.h"

namespace cairn {

// Drawn digits in two colours on a third that runs into a fourth, 32x32x3, as CIFAR-10's binary version:
// data_batch_1.bin to data_batch_5.bin, test_batch.bin, batches.meta.txt. train_count is at least 5.
absl::Status WriteColourGlyphs(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed);

// Texts as numbers of words: train.tfrecord and test.tfrecord with "x" (int64_list of 10 to kTextWordsMax words, 1 ..
// kTextVocabulary - 1) and "y" (which of kTextTopics topics). A word in five is of its topic's own vocabulary, the
// others are common to all.
inline constexpr int kTextVocabulary = 2000;
inline constexpr int kTextTopics = 4;
absl::Status WriteTexts(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed);

}  // namespace cairn
