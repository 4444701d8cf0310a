// Goal: numbers that a layer of categories refuses are refused by both backends in the same words, which name the
// layer, the number and the example; the bins of Discretization and the like are those of Keras' documentation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/onednn/onednn_backend.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

using testing::HasSubstr;

Batch BatchOf(const std::vector<float>& inputs, int64_t examples) {
  Batch batch;
  batch.examples = examples;
  batch.label_size = 1;
  batch.inputs = Buffer::CopyOf(inputs.data(), inputs.size() * sizeof(float));
  batch.labels = Buffer::Allocate(static_cast<size_t>(examples) * sizeof(float));
  std::fill(batch.labels.mutable_floats().begin(), batch.labels.mutable_floats().end(), 0.0f);
  return batch;
}

// What each backend predicts with the layer, named "l", behind an input.
void ForEachBackend(const std::string& layer, int64_t numbers, const std::vector<float>& inputs,
                    const std::function<void(const absl::StatusOr<Buffer>&)>& check) {
  const auto graph = std::make_shared<const Graph>(
      Graph::Build(FromText<v1::Model>(
                       absl::StrCat("layers { input { shape: ", numbers, " } } layers { name: 'l' ", layer, " }")))
          .value());
  ProgramOptions options;
  options.batch_max = static_cast<int64_t>(inputs.size()) / numbers;
  options.loss.set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  for (const auto& backend : {MakeReferenceBackend(), MakeOnednnBackend()}) {
    SCOPED_TRACE(backend->name() + ": " + layer);
    const auto program = backend->Compile(graph, options);
    ASSERT_TRUE(program.ok()) << program.status();
    check((*program)->Predict(BatchOf(inputs, options.batch_max), {}));
  }
}

void ExpectRefused(const std::string& layer, float bad, const std::string& error) {
  ForEachBackend(layer, 2, {1, 1, 1, bad, 1, 1}, [&](const absl::StatusOr<Buffer>& predicted) {
    EXPECT_EQ(predicted.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(predicted.status().message()), HasSubstr("layer \"l\": example 1 of the batch: " + error));
  });
}

void ExpectGives(const std::string& layer, int64_t numbers, const std::vector<float>& inputs,
                 const std::vector<float>& outputs) {
  ForEachBackend(layer, numbers, inputs, [&](const absl::StatusOr<Buffer>& predicted) {
    ASSERT_TRUE(predicted.ok()) << predicted.status();
    EXPECT_EQ(std::vector<float>(predicted->floats().begin(), predicted->floats().end()), outputs);
  });
}

TEST(Categories, WhatTheyDoNotTakeIsNamed) {
  const std::string encoding = "category_encoding { num_tokens: 3 }";
  ExpectRefused(encoding, 3, "3 is not a whole number in [0, 3); correct the data or set num_tokens");
  ExpectRefused(encoding, -1, "-1 is not a whole number");
  ExpectRefused(encoding, 0.5f, "0.5 is not a whole number");
  ExpectRefused(encoding, std::nanf(""), "nan is not a whole number");
  const std::string lookup = "integer_lookup { vocabulary: [1, 2] num_oov_indices: 0 }";
  ExpectRefused(lookup, 7, "7 is not in the vocabulary, and num_oov_indices is 0; add it");
  ExpectRefused(lookup, 1.5f, "1.5 is not a whole number; correct the data");
  ExpectRefused("hashing { num_bins: 3 }", 1e30f, "1e+30 is not a number within 64 bits");
  ExpectRefused("hashing { num_bins: 3 }", std::nanf(""), "nan is not a number within 64 bits");
  for (const auto& [bad, error] :
       {std::pair(2.5f, "2.5 is not a whole number"), std::pair(1e30f, "1e+30 is not a number")}) {
    ForEachBackend("inputs: ['input_layer', 'input_layer'] hashed_crossing { num_bins: 3 }", 1, {4, bad},
                   [&](const absl::StatusOr<Buffer>& predicted) {
                     EXPECT_THAT(std::string(predicted.status().message()),
                                 HasSubstr(absl::StrCat("layer \"l\": example 1 of the batch: ", error)));
                   });
  }
}

// The examples of Keras' documentation.
TEST(Categories, GiveWhatKerasDocuments) {
  ExpectGives("discretization { bin_boundaries: [0, 1, 2] }", 4, {-1.5f, 1.0f, 3.4f, 0.5f, 0.0f, 3.0f, 1.3f, 0.0f},
              {0, 2, 3, 1, 1, 3, 2, 1});
  ExpectGives("category_encoding { num_tokens: 4 output_mode: ONE_HOT }", 1, {3, 2, 0, 1},
              {0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0});
  ExpectGives("category_encoding { num_tokens: 4 output_mode: MULTI_HOT }", 2, {0, 1, 0, 0, 1, 2, 3, 1},
              {1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1});
  ExpectGives("integer_lookup { vocabulary: [12, 36, 1138, 42] }", 3, {12, 1138, 42, 42, 1000, 36}, {1, 3, 4, 4, 0, 2});
  ExpectGives("integer_lookup { vocabulary: [12, 36, 1138, 42] num_oov_indices: 2 }", 3, {12, 1138, 42, 37, 1000, 36},
              {2, 4, 5, 1, 0, 3});
  ExpectGives("integer_lookup { vocabulary: [12, 36, 1138, 42] output_mode: COUNT }", 4,
              {12, 1138, 42, 42, 42, 7, 36, 7}, {0, 1, 0, 1, 2, 2, 0, 1, 0, 1});
  ExpectGives(
      "integer_lookup { vocabulary: [12, 36, 1138, 42] output_mode: TF_IDF idf_weights: [0.25, 0.75, 0.6, 0.4] }", 4,
      {12, 1138, 42, 42, 42, 7, 36, 7}, {0, 0.25f, 0, 0.6f, 0.8f, 1.0f, 0, 0.75f, 0, 0.4f});
}

// NaN lies above all boundaries, as in tf.searchsorted.
TEST(Categories, BucketOfWhatIsNoNumber) {
  ExpectGives("discretization { bin_boundaries: [0, 1] }", 1, {std::nanf(""), -INFINITY, INFINITY}, {2, 0, 2});
}

}  // namespace
}  // namespace cairn
