// Generated data sets in addition to the glyphs (glyphs.h): substitutes for CIFAR-10 and for short texts on machines
// without a network. Each example is a pure function of (seed, split, index).
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/data/limits.h"

namespace cairn {

// Digits in two colours on a background with a gradient between two others, 32x32x3, in the layout of CIFAR-10's binary
// version: data_batch_1.bin to data_batch_5.bin, test_batch.bin, batches.meta.txt. train_count must be at least 5.
absl::Status WriteColourGlyphs(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed);

// Texts as word ids: train.tfrecord and test.tfrecord with "x" (int64_list of 10 to kTextWordsMax words, 1 ..
// kTextVocabulary - 1) and "y" (one of kTextTopics topics). One word in five is from the topic's own vocabulary; the
// others are common to all topics.
inline constexpr int kTextVocabulary = 2000;
inline constexpr int kTextTopics = 4;
absl::Status WriteTexts(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed);

// The same texts spelled: train.csv and test.csv with the columns "text", words with capitals and punctuation, and
// "topic", its name. The words' spellings differ.
absl::Status WriteSentences(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed);

}  // namespace cairn
