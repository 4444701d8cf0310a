// Goal: the GPU's kernels for layers of categories give the indices and encodings of the CPU's own code
// (common/model/category_function.h), which has Keras' hashes: for numbers of every length, of both signs, at the edges
// of 64 bits, and for such as a layer refuses; with the same bits in any order of blocks.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/fingerprint.h"
#include "common/model/category_function.h"
#include "common/model/graph.h"
#include "tests/unit/backend/kernels_testing.h"
#include "tests/unit/model/model_text.h"
#include "worker/backend/cudnn/kernels/categories.h"

namespace cairn::cudnn::kernels {
namespace {

// Of every length, with the sign, besides those of no length at all.
std::vector<float> NumbersOfEveryLength() {
  std::vector<float> numbers = {0, -0.0f, 0.5f, -1.75f, 9, 10, -9, -10, -0x1p62f, 0x1.fffffep62f, -0x1.fffffep62f};
  double one = 1;
  for (int length = 1; length < 19; ++length, one *= 10) {
    for (const double digit : {1.0, 3.0, 7.0}) {
      numbers.push_back(static_cast<float>(digit * one));
      numbers.push_back(static_cast<float>(-digit * one - 1));
    }
  }
  for (const float f : Random(200, 4, -1e6f, 1e6f)) numbers.push_back(f);
  return numbers;
}

std::vector<int32_t> IndicesOf(const CategoryIndices& c) {
  const std::vector<float> bits = Launched(
      c.numbers, DType::kFloat32, [&](void* out) { return IndexCategories(nullptr, c, static_cast<int32_t*>(out)); });
  std::vector<int32_t> indices(bits.size());
  std::memcpy(indices.data(), bits.data(), bits.size() * sizeof(float));
  return indices;
}

uint64_t BinOf(float number, uint64_t bins, const uint64_t* salt) {
  const std::string text = absl::StrCat(static_cast<int64_t>(number));
  return (salt == nullptr ? Fingerprint64(text) : SipHash({salt[0], salt[1]}, text)) % bins;
}

TEST(Categories, HashesAreThoseOfTheDigits) {
  std::vector<float> numbers = NumbersOfEveryLength();
  const size_t good = numbers.size();
  for (const float bad : {0x1p63f, -0x1p63f, std::numeric_limits<float>::infinity(), std::nanf("")})
    numbers.push_back(bad);
  const Tensor x(numbers);
  CategoryIndices c;
  c.rule = CategoryRule::kHashed;
  c.numbers = static_cast<int64_t>(numbers.size());
  c.x = x.floats();
  c.bins = 1'000'003;
  for (const bool salted : {false, true}) {
    for (const bool mask : {false, true}) {
      c.salted = salted;
      c.salt[0] = 133, c.salt[1] = 18446744073709551615u;
      c.has_mask = mask;
      c.mask = -10;
      const std::vector<int32_t> got = IndicesOf(c);
      for (size_t i = 0; i < numbers.size(); ++i) {
        const uint64_t* const salt = salted ? c.salt : nullptr;
        const auto bins = static_cast<uint64_t>(c.bins);
        const int64_t want = i >= good           ? kRefused
                             : !mask             ? static_cast<int64_t>(BinOf(numbers[i], bins, salt))
                             : numbers[i] == -10 ? 0
                                                 : 1 + static_cast<int64_t>(BinOf(numbers[i], bins - 1, salt));
        EXPECT_EQ(got[i], want) << numbers[i] << (salted ? " salted" : "") << (mask ? " masked" : "");
      }
    }
  }
}

TEST(Categories, CrossedNumbers) {
  const std::vector<float> some = NumbersOfEveryLength();
  std::vector<float> numbers;
  for (const float number : some) numbers.insert(numbers.end(), {std::trunc(number), 3, number});
  const Tensor x(numbers);
  CategoryIndices c;
  c.rule = CategoryRule::kCrossed;
  c.numbers = static_cast<int64_t>(some.size());
  c.inputs = 3;
  c.x = x.floats();
  c.bins = 1'000'003;
  const std::vector<int32_t> got = IndicesOf(c);
  int refused = 0;
  for (size_t i = 0; i < some.size(); ++i) {
    const auto number = static_cast<int64_t>(some[i]);
    uint64_t hash = kCrossingKey;
    for (const int64_t one : {number, int64_t{3}, number}) hash = JoinFingerprints(hash, static_cast<uint64_t>(one));
    const bool whole = static_cast<float>(number) == some[i];
    EXPECT_EQ(got[i], whole ? static_cast<int64_t>(hash % 1'000'003) : kRefused) << some[i];
    refused += whole ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

TEST(Categories, BucketsAndVocabularies) {
  const float none = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> numbers = {-2, -0.5f, -0.25f, 0, 0.5f, 0.75f, 3, 4, -7, 1e9f, none, infinity, -infinity};
  const Tensor x(numbers);
  CategoryIndices c;
  c.numbers = static_cast<int64_t>(numbers.size());
  c.x = x.floats();
  const std::vector<double> boundaries = {-0.5, 0, 0.75};
  Memory of_boundaries(boundaries.size() * 8);
  of_boundaries.Put(boundaries.data(), boundaries.size() * 8);
  c.entries.count = 3;
  c.entries.boundaries = static_cast<const double*>(of_boundaries.data());
  EXPECT_EQ(IndicesOf(c), (std::vector<int32_t>{0, 1, 1, 2, 2, 3, 3, 3, 0, 3, 3, 3, 0}));
  const std::vector<int64_t> tokens = {-7, 0, 4};
  const std::vector<int32_t> indices = {5, 6, 4};
  Memory of_tokens(tokens.size() * 8), of_indices(indices.size() * 4);
  of_tokens.Put(tokens.data(), tokens.size() * 8);
  of_indices.Put(indices.data(), indices.size() * 4);
  c.rule = CategoryRule::kLookedUp;
  c.entries.tokens = static_cast<const int64_t*>(of_tokens.data());
  c.entries.indices = static_cast<const int32_t*>(of_indices.data());
  c.has_mask = true;
  c.mask = 3;
  c.mask_index = kSkipped;
  c.unknown_begin = 1, c.unknown = 3;
  const int32_t bad = kRefused;  // -2 is 1 and 10^9 is 1 modulo 3
  EXPECT_EQ(IndicesOf(c), (std::vector<int32_t>{2, bad, bad, 6, bad, bad, kSkipped, 4, 5, 2, bad, bad, bad}));
  c.unknown = 0;
  EXPECT_EQ(IndicesOf(c), (std::vector<int32_t>{bad, bad, bad, 6, bad, bad, kSkipped, 4, 5, bad, bad, bad, bad}));
}

TEST(Categories, TheFirstRefusedIsRecorded) {
  std::vector<float> numbers(1000, 1);
  const Tensor good(numbers);
  numbers[2 * 300] = 8, numbers[2 * 301] = 9, numbers[2 * 300 + 1] = -4;
  const Tensor bad(numbers);
  std::vector<int32_t> indices(500, 1), refused(indices);
  refused[300] = refused[301] = refused[499] = kRefused;
  for (const bool any : {false, true}) {
    CategoryIndices c;
    c.numbers = 500, c.inputs = 2;
    c.x = any ? bad.floats() : good.floats();
    Memory of_indices(2000);
    of_indices.Put((any ? refused : indices).data(), 2000);
    const std::vector<float> bits = Launched(6, DType::kFloat32, [&](void* out) {
      return RecordRefused(nullptr, c, static_cast<const int32_t*>(of_indices.data()), static_cast<double*>(out));
    });
    double record[3];
    std::memcpy(record, bits.data(), sizeof record);
    EXPECT_EQ(record[0], any ? 301 : 0);
    EXPECT_EQ(record[1], any ? 8 : 0);
    EXPECT_EQ(record[2], any ? -4 : 0);
  }
}

class Encodings : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, Encodings, testing::ValuesIn(kAllTypes), TypeName);

TEST_P(Encodings, AreThoseOfTheCpu) {
  const std::vector<int32_t> indices = {2, 0, kSkipped, 2, 1, 4, 4, 4, kSkipped, 3, 3, 0};
  Memory of_indices(indices.size() * 4);
  of_indices.Put(indices.data(), indices.size() * 4);
  const std::vector<float> weights = {0.5f, 2, 0.25f, 4, 1.5f};
  const Tensor of_weights(weights);
  for (const v1::EncodingMode mode : {v1::INT, v1::ONE_HOT, v1::MULTI_HOT, v1::COUNT, v1::TF_IDF}) {
    const CategoryCode code{mode, 5, weights};
    CategoryRows rows{CategoryMode::kCount, 3, 4, 5};
    if (mode == v1::INT) rows.mode = CategoryMode::kInt;
    if (mode == v1::ONE_HOT) rows.mode = CategoryMode::kOneHot;
    if (mode == v1::MULTI_HOT) rows.mode = CategoryMode::kMultiHot;
    if (mode == v1::TF_IDF) rows.weights = of_weights.floats();
    const size_t each = mode == v1::INT ? 4 : mode == v1::ONE_HOT ? 20 : 5;
    std::vector<double> want(3 * each);
    for (size_t r = 0; r < 3; ++r) {
      const std::vector<int64_t> own(indices.begin() + static_cast<int64_t>(r) * 4,
                                     indices.begin() + static_cast<int64_t>(r) * 4 + 4);
      code.Write(absl::MakeConstSpan(own), want.data() + r * each);
    }
    for (double& number : want) number = mode == v1::INT && number < 0 ? 0 : number;  // a layer of INT skips none
    ExpectNear(Launched(static_cast<int64_t>(want.size()), type(),
                        [&](void* y) {
                          return EncodeCategories(nullptr, rows, static_cast<const int32_t*>(of_indices.data()), y,
                                                  type());
                        }),
               want, 0, v1::EncodingMode_Name(mode));
  }
}

}  // namespace
}  // namespace cairn::cudnn::kernels
