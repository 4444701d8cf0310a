// Goal: whole models of the further layers learn: a small transformer that classifies texts, a small U-Net that
// segments images, a stack of ConvLSTMs that sees films; the loss falls, twice the same bits, whatever the program
// computed in between. And ids that an Embedding does not have are refused by both backends, in the same words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/onednn/onednn_backend.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

std::shared_ptr<const Graph> GraphOf(const std::string& model) {
  return std::make_shared<const Graph>(Graph::Build(FromText<v1::Model>(model)).value());
}

Batch MakeBatch(int64_t examples, int64_t inputs, int64_t labels) {
  Batch batch;
  batch.examples = examples;
  batch.label_size = labels;
  batch.inputs = Buffer::Allocate(examples * inputs * sizeof(float));
  batch.labels = Buffer::Allocate(examples * labels * sizeof(float));
  return batch;
}

// The loss of each step (a mean), and the last weights.
struct Course {
  std::vector<double> losses;
  std::vector<float> values;
};

Course Train(const std::shared_ptr<const Graph>& graph, const std::string& loss, const Batch& batch, int steps,
             float rate) {
  ProgramOptions options;
  options.batch_max = batch.examples;
  options.loss = FromText<v1::Loss>(loss);
  auto program = MakeOnednnBackend()->Compile(graph, options);
  EXPECT_TRUE(program.ok()) << program.status();
  Course course;
  course.values = CaseValues(*graph, 3);
  for (const Variable& v : graph->variables()) {
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
      if (v.name.ends_with("/gamma")) course.values[i] = 1;
      if (v.name.ends_with("/kernel")) course.values[i] *= 2.0f / std::sqrt(static_cast<float>(v.fan_in));
    }
  }
  std::vector<float> gradients(graph->space_size());
  for (int step = 0; step < steps; ++step) {
    const StepInfo info{.seed = 1, .step = static_cast<uint64_t>(step), .replica = 0};
    const auto sums = (*program)->TrainStep(batch, info, course.values, absl::MakeSpan(gradients), nullptr);
    EXPECT_TRUE(sums.ok()) << sums.status();
    if (!sums.ok()) return course;
    course.losses.push_back(sums->loss / static_cast<double>(batch.examples));
    for (size_t i = 0; i < gradients.size(); ++i) {
      course.values[i] -= rate * gradients[i] / static_cast<float>(batch.examples);
    }
    if (step % 3 == 0) {
      EXPECT_TRUE((*program)->Predict(batch, course.values).ok());
    }
  }
  return course;
}

void ExpectLearns(const std::shared_ptr<const Graph>& graph, const std::string& loss, const Batch& batch, int steps,
                  float rate) {
  const Course once = Train(graph, loss, batch, steps, rate), twice = Train(graph, loss, batch, steps, rate);
  ASSERT_EQ(once.losses.size(), static_cast<size_t>(steps));
  EXPECT_LT(once.losses.back(), 0.5 * once.losses.front());
  EXPECT_EQ(once.losses, twice.losses);
  EXPECT_EQ(once.values, twice.values);
}

TEST(OnednnTraining, ATransformerLearnsWhichWordATextHas) {
  const auto graph = GraphOf(R"(
    layers { input { shape: 12 } }
    layers { name: "x" embedding { input_dim: 30 output_dim: 16 } }
    layers { name: "norm" layer_normalization { epsilon: 1e-6 } }
    layers { name: "mixed" inputs: ["norm", "norm"] multi_head_attention { num_heads: 2 key_dim: 8 dropout: 0.1 } }
    layers { name: "sum" inputs: ["x", "mixed"] add {} }
    layers { layer_normalization { epsilon: 1e-6 } }
    layers { dense { units: 32 activation: GELU } }
    layers { name: "wide" dense { units: 16 } }
    layers { inputs: ["sum", "wide"] add {} }
    layers { global_average_pooling1d {} }
    layers { dropout { rate: 0.1 } }
    layers { dense { units: 3 activation: SOFTMAX } })");
  Batch batch = MakeBatch(24, 12, 1);
  for (int64_t e = 0; e < batch.examples; ++e) {
    const int64_t label = e % 3;
    for (int64_t i = 0; i < 12; ++i) {
      const float u = CaseUniform(8, static_cast<uint32_t>(e * 12 + i));
      batch.inputs.mutable_floats()[e * 12 + i] = std::floor(3 + u * 27);
    }
    batch.inputs.mutable_floats()[e * 12 + e * 5 % 12] = static_cast<float>(label);
    batch.labels.mutable_floats()[e] = static_cast<float>(label);
  }
  ExpectLearns(graph, "kind: SPARSE_CATEGORICAL_CROSSENTROPY", batch, 60, 0.5f);
}

TEST(OnednnTraining, AUNetLearnsWhereImagesAreBright) {
  const auto graph = GraphOf(R"(
    layers { name: "x" input { shape: [16, 12, 1] } }
    layers { name: "a" conv2d { filters: 16 kernel_size: 3 padding: SAME activation: RELU } }
    layers { max_pooling2d {} }
    layers { name: "b" separable_conv2d { filters: 24 kernel_size: 3 padding: SAME activation: SILU } }
    layers { max_pooling2d {} }
    layers { conv2d { filters: 32 kernel_size: 3 padding: SAME activation: ELU } }
    layers { group_normalization { groups: 4 } }
    layers { spatial_dropout2d { rate: 0.1 } }
    layers { name: "up1" conv2d_transpose { filters: 24 kernel_size: 3 strides: 2 padding: SAME activation: RELU } }
    layers { name: "c" inputs: ["up1", "b"] concatenate {} }
    layers { conv2d { filters: 16 kernel_size: 3 padding: SAME activation: RELU } }
    layers { name: "up2" up_sampling2d { interpolation: BILINEAR } }
    layers { inputs: ["up2", "a"] concatenate {} }
    layers { conv2d { filters: 1 kernel_size: 1 activation: SIGMOID } })");
  Batch batch = MakeBatch(6, 16 * 12, 16 * 12);
  for (int64_t i = 0; i < 6 * 16 * 12; ++i) {
    const int64_t e = i / (16 * 12), y = i / 12 % 16, x = i % 12;
    const bool bright = (y / 4 + x / 4 + e) % 2 == 0;
    batch.inputs.mutable_floats()[i] =
        (bright ? 0.7f : 0.3f) + 0.3f * (CaseUniform(9, static_cast<uint32_t>(i)) - 0.5f);
    batch.labels.mutable_floats()[i] = bright ? 1.0f : 0.0f;
  }
  ExpectLearns(graph, "kind: BINARY_CROSSENTROPY", batch, 60, 0.5f);
}

// No single picture says which way the dot goes.
TEST(OnednnTraining, AConvLstmLearnsWhichWayADotGoes) {
  constexpr int64_t kSteps = 4, kSide = 7, kFilms = 16, kNumbers = kSteps * kSide * kSide;
  const auto graph = GraphOf(R"(
    layers { input { shape: [4, 7, 7, 1] } }
    layers { conv_lstm2d { filters: 4 kernel_size: 3 padding: SAME return_sequences: true recurrent_dropout: 0.1 } }
    layers { bidirectional { merge_mode: SUM layer { conv_lstm2d { filters: 6 kernel_size: 3 strides: 2 } } } }
    layers { flatten {} }
    layers { dense { units: 4 activation: SOFTMAX } })");
  Batch batch = MakeBatch(kFilms, kNumbers, 1);
  std::fill_n(batch.inputs.mutable_floats().data(), kFilms * kNumbers, 0.0f);
  for (int64_t film = 0; film < kFilms; ++film) {
    const int64_t way = film % 4;
    batch.labels.mutable_floats()[film] = static_cast<float>(way);
    int64_t y = 2 + film / 4 % 2, x = 2 + film / 8;
    for (int64_t step = 0; step < kSteps; ++step) {
      batch.inputs.mutable_floats()[film * kNumbers + (step * kSide + y % kSide) * kSide + x % kSide] = 1;
      y += way == 0 ? 1 : way == 1 ? kSide - 1 : 0;
      x += way == 2 ? 1 : way == 3 ? kSide - 1 : 0;
    }
  }
  ExpectLearns(graph, "kind: SPARSE_CATEGORICAL_CROSSENTROPY", batch, 80, 1.0f);
}

TEST(Embedding, RefusesIdsThatItDoesNotHave) {
  const auto graph = GraphOf(
      "layers { input { shape: 4 } } layers { name: 'words' embedding { input_dim: 10 output_dim: 3 } } "
      "layers { global_average_pooling1d {} } layers { dense { units: 2 activation: SOFTMAX } }");
  ProgramOptions options;
  options.batch_max = 3;
  options.loss.set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  const std::vector<float> values = CaseValues(*graph, 1);
  std::vector<float> gradients(graph->space_size());
  struct Case {
    float id;
    std::string message;
  };
  const std::vector<Case> cases = {
      {10,
       "layer \"words\": id 10 in example 1 of the batch is not a whole number in [0, 10); correct the data or set "
       "input_dim to the largest id plus 1"},
      {-1, "id -1 in example 1"},
      {2.5f, "id 2.5 in example 1"},
      {1e30f, "id 1e+30 in example 1"},
      {std::nanf(""), "id nan in example 1"},
  };
  for (const auto& backend : {MakeReferenceBackend(), MakeOnednnBackend()}) {
    const auto program = backend->Compile(graph, options).value();
    Batch batch = MakeBatch(3, 4, 1);
    std::fill(batch.inputs.mutable_floats().begin(), batch.inputs.mutable_floats().end(), 9.0f);
    std::fill(batch.labels.mutable_floats().begin(), batch.labels.mutable_floats().end(), 1.0f);
    for (const Case& c : cases) {
      batch.inputs.mutable_floats()[6] = c.id;
      const auto trained = program->TrainStep(batch, {}, values, absl::MakeSpan(gradients), nullptr);
      EXPECT_EQ(trained.status().code(), absl::StatusCode::kInvalidArgument) << backend->name();
      EXPECT_THAT(std::string(trained.status().message()), testing::HasSubstr(c.message)) << backend->name();
      EXPECT_FALSE(program->Evaluate(batch, values).ok());
      EXPECT_FALSE(program->Predict(batch, values).ok());
    }
    batch.inputs.mutable_floats()[6] = 0;
    EXPECT_TRUE(program->TrainStep(batch, {}, values, absl::MakeSpan(gradients), nullptr).ok());
  }
}

// Class weights: the loss and the gradients of a batch are those of its examples one by one, each times the weight of
// its class, in both backends; evaluation and the number of examples are not weighted.
TEST(ClassWeights, AreFactorsOfTheExamples) {
  const auto graph = GraphOf(
      "layers { input { shape: [6, 6, 2] } } layers { conv2d { filters: 5 kernel_size: 3 activation: TANH } } layers { "
      "flatten {} } "
      "layers { dense { units: 4 activation: SOFTMAX } }");
  ProgramOptions plain;
  plain.batch_max = 9;
  plain.loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY");
  ProgramOptions weighted = plain;
  weighted.class_weights = {FromText<v1::ClassWeight>("class_id: 1 weight: 4"),
                            FromText<v1::ClassWeight>("class_id: 3 weight: 0")};
  const float weights[] = {1, 4, 1, 0};
  const Batch batch = CaseBatch(*graph, plain.loss, 9, 1);
  const std::vector<float> values = CaseValues(*graph, 2);
  const size_t inputs = 6 * 6 * 2;
  for (const auto& backend : {MakeReferenceBackend(), MakeOnednnBackend()}) {
    SCOPED_TRACE(backend->name());
    const auto program = backend->Compile(graph, plain).value();
    std::vector<float> gradients(graph->space_size()), one(graph->space_size());
    std::vector<double> expected(graph->space_size(), 0.0);
    double loss = 0;
    for (int e = 0; e < 9; ++e) {
      Batch single;
      single.examples = 1;
      single.inputs = Buffer::CopyOf(batch.inputs.floats().data() + e * inputs, inputs * sizeof(float));
      single.labels = Buffer::CopyOf(batch.labels.floats().data() + e, sizeof(float));
      const auto sums = program->TrainStep(single, {}, values, absl::MakeSpan(one), nullptr);
      ASSERT_TRUE(sums.ok()) << sums.status();
      const float weight = weights[static_cast<int>(batch.labels.floats()[e])];
      loss += weight * sums->loss;
      for (size_t i = 0; i < one.size(); ++i) expected[i] += weight * one[i];
    }
    const auto heavy = backend->Compile(graph, weighted).value();
    const auto sums = heavy->TrainStep(batch, {}, values, absl::MakeSpan(gradients), nullptr);
    ASSERT_TRUE(sums.ok()) << sums.status();
    EXPECT_EQ(sums->examples, 9u);
    EXPECT_NEAR(sums->loss, loss, 1e-5 * loss);
    for (size_t i = 0; i < gradients.size(); ++i)
      EXPECT_NEAR(gradients[i], expected[i], 1e-5 + 1e-4 * std::abs(expected[i])) << i;
    EXPECT_EQ(heavy->Evaluate(batch, values)->loss, program->Evaluate(batch, values)->loss);
  }
}

}  // namespace
}  // namespace cairn
