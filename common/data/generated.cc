#include "common/data/generated.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/data/glyphs.h"
#include "common/data/limits.h"
#include "common/data/tf_example.h"

namespace cairn {
namespace {

constexpr int kSide = 32, kPlane = kSide * kSide;
constexpr int kTrainFiles = 5;
// Splits of the glyphs' random stream that these data sets use.
constexpr uint32_t kColourTrain = 2, kColourTest = 3, kTextTrain = 4, kTextTest = 5;
constexpr uint32_t kColours = 1 << 16;  // counters of the random numbers that are not the glyph's

constexpr int kTopicWords = 100;  // in each topic's own vocabulary
constexpr int kTextWordsMin = 10;

absl::Status CheckCount(int64_t count, int64_t least) {
  if (count >= least && count <= kGlyphsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("count: %d is not in %d to %d", count, least, kGlyphsMax));
}

absl::Status MakeDir(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("%s: cannot be made: %s", dir, error.message()));
}

class OutFile {
 public:
  explicit OutFile(const std::string& path) : path_(path), file_(path, std::ios::binary | std::ios::trunc) {}
  void Write(const std::string& bytes) { file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())); }
  absl::Status Close() {
    file_.close();
    if (file_.good()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrFormat("%s: cannot be written: %s", path_, std::strerror(errno)));
  }

 private:
  const std::string path_;
  std::ofstream file_;
};

// ---- colour glyphs ----

// The label, then the red, green and blue planes.
std::string ColourRecord(uint64_t seed, uint32_t split, uint32_t index) {
  std::array<uint8_t, kGlyphPixels> ink;
  const int digit = DrawGlyph(seed, split, index, absl::MakeSpan(ink));
  const std::array<uint32_t, 2> key = StreamKey(seed, RandomStream::kGlyphs);
  const PhiloxBlock colours[] = {Philox(key, {index, split, kColours, 0}),
                                 Philox(key, {index, split, kColours + 1, 0})};
  const int top = static_cast<int>(colours[1][2] % 5), left = static_cast<int>(colours[1][3] % 5);
  const bool dark = colours[1][2] >> 31 != 0;  // dark ink on light paper, or the reverse
  std::string record(1 + 3 * kPlane, '\0');
  record[0] = static_cast<char>(digit);
  for (int c = 0; c < 3; ++c) {
    const int shift = 8 * c;
    const int above = static_cast<int>(colours[0][0] >> shift & 0x7f),
              below = static_cast<int>(colours[0][1] >> shift & 0x7f);
    const int pen = 128 + static_cast<int>(colours[0][2] >> shift & 0x7f);
    for (int y = 0; y < kSide; ++y) {
      const int paper = (above * (kSide - 1 - y) + below * y) / (kSide - 1);
      for (int x = 0; x < kSide; ++x) {
        const int row = y - top, column = x - left;
        const bool inside = row >= 0 && row < kGlyphSide && column >= 0 && column < kGlyphSide;
        const int share = inside ? ink[static_cast<size_t>(row) * kGlyphSide + static_cast<size_t>(column)] : 0;
        const int value = paper + (pen - paper) * share / 255;
        record[1 + static_cast<size_t>(c) * kPlane + static_cast<size_t>(y) * kSide + static_cast<size_t>(x)] =
            static_cast<char>(dark ? 255 - value : value);
      }
    }
  }
  return record;
}

absl::Status WriteColourFile(const std::string& path, uint64_t seed, uint32_t split, int64_t begin, int64_t end) {
  OutFile file(path);
  for (int64_t i = begin; i < end; ++i) file.Write(ColourRecord(seed, split, static_cast<uint32_t>(i)));
  return file.Close();
}

// ---- texts ----

struct Text {
  int topic = 0;
  std::vector<int64_t> words;
};

// The vocabulary: 0 is padding, then kTextTopics * kTopicWords words of the topics, then the common words, the most
// frequent ones first.
Text DrawText(uint64_t seed, uint32_t split, uint32_t index) {
  const std::array<uint32_t, 2> key = StreamKey(seed, RandomStream::kGlyphs);
  const PhiloxBlock head = Philox(key, {index, split, 0, 0});
  Text text;
  text.topic = static_cast<int>(head[0] % kTextTopics);
  const int words = kTextWordsMin + static_cast<int>(head[1] % (kTextWordsMax - kTextWordsMin + 1));
  constexpr int kCommonBegin = 1 + kTextTopics * kTopicWords, kCommon = kTextVocabulary - kCommonBegin;
  for (int w = 0; w < words; ++w) {
    const PhiloxBlock draw = Philox(key, {index, split, 1, static_cast<uint32_t>(w)});
    if (draw[0] % 5 == 0) {
      text.words.push_back(1 + text.topic * kTopicWords + static_cast<int>(draw[1] % kTopicWords));
    } else {  // the minimum of two draws makes the first words more frequent
      text.words.push_back(kCommonBegin + static_cast<int>(std::min(draw[1] % kCommon, draw[2] % kCommon)));
    }
  }
  return text;
}

std::string TextRecord(uint64_t seed, uint32_t split, uint32_t index) {
  const Text text = DrawText(seed, split, index);
  return WriteExample({{.name = "x", .kind = FeatureKind::kInts, .ints = text.words},
                       {.name = "y", .kind = FeatureKind::kInts, .ints = {text.topic}}});
}

// Two syllables, which say the number.
std::string Spelling(int64_t word) {
  constexpr char kConsonants[] = "bdfgklmnprstvz", kVowels[] = "aeiou";
  constexpr int64_t kVowelCount = 5, kSyllables = 14 * kVowelCount;
  static_assert(kTextVocabulary <= kSyllables * kSyllables);
  std::string letters;
  for (const int64_t syllable : {word / kSyllables, word % kSyllables}) {
    letters.push_back(kConsonants[syllable / kVowelCount]);
    letters.push_back(kVowels[syllable % kVowelCount]);
  }
  return letters;
}

// Every seventh word ends in a comma; the quotes keep commas apart from the columns'.
std::string SentenceLine(uint64_t seed, uint32_t split, uint32_t index) {
  static constexpr std::array<const char*, kTextTopics> kTopics = {"food", "music", "space", "sport"};
  const Text text = DrawText(seed, split, index);
  std::string line = "\"";
  for (size_t w = 0; w < text.words.size(); ++w) {
    std::string word = Spelling(text.words[w]);
    if (w == 0) word[0] = absl::ascii_toupper(static_cast<unsigned char>(word[0]));
    absl::StrAppend(&line, w == 0 ? "" : w % 7 == 0 ? ", " : " ", word);
  }
  return absl::StrCat(line, ".\",", kTopics[static_cast<size_t>(text.topic)], "\n");
}

absl::Status WriteSentenceFile(const std::string& path, uint64_t seed, uint32_t split, int64_t count) {
  OutFile file(path);
  file.Write("text,topic\n");
  for (int64_t i = 0; i < count; ++i) file.Write(SentenceLine(seed, split, static_cast<uint32_t>(i)));
  return file.Close();
}

absl::Status WriteTextFile(const std::string& path, uint64_t seed, uint32_t split, int64_t count) {
  OutFile file(path);
  std::string frame;
  for (int64_t i = 0; i < count; ++i) {
    frame.clear();
    AppendRecord(TextRecord(seed, split, static_cast<uint32_t>(i)), &frame);
    file.Write(frame);
  }
  return file.Close();
}

}  // namespace

absl::Status WriteColourGlyphs(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed) {
  CAIRN_RETURN_IF_ERROR(CheckCount(train_count, kTrainFiles));
  CAIRN_RETURN_IF_ERROR(CheckCount(test_count, 1));
  CAIRN_RETURN_IF_ERROR(MakeDir(dir));
  for (int64_t f = 0; f < kTrainFiles; ++f) {
    CAIRN_RETURN_IF_ERROR(WriteColourFile(absl::StrFormat("%s/data_batch_%d.bin", dir, f + 1), seed, kColourTrain,
                                          train_count * f / kTrainFiles, train_count * (f + 1) / kTrainFiles));
  }
  CAIRN_RETURN_IF_ERROR(WriteColourFile(dir + "/test_batch.bin", seed, kColourTest, 0, test_count));
  OutFile names(dir + "/batches.meta.txt");
  names.Write("zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n");
  return names.Close();
}

absl::Status WriteTexts(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed) {
  CAIRN_RETURN_IF_ERROR(CheckCount(train_count, 1));
  CAIRN_RETURN_IF_ERROR(CheckCount(test_count, 1));
  CAIRN_RETURN_IF_ERROR(MakeDir(dir));
  CAIRN_RETURN_IF_ERROR(WriteTextFile(dir + "/train.tfrecord", seed, kTextTrain, train_count));
  return WriteTextFile(dir + "/test.tfrecord", seed, kTextTest, test_count);
}

absl::Status WriteSentences(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed) {
  CAIRN_RETURN_IF_ERROR(CheckCount(train_count, 1));
  CAIRN_RETURN_IF_ERROR(CheckCount(test_count, 1));
  CAIRN_RETURN_IF_ERROR(MakeDir(dir));
  CAIRN_RETURN_IF_ERROR(WriteSentenceFile(dir + "/train.csv", seed, kTextTrain, train_count));
  return WriteSentenceFile(dir + "/test.csv", seed, kTextTest, test_count);
}

}  // namespace cairn
