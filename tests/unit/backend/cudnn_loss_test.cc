// Goal: a program of the cuDNN backend weights examples, skips ignored positions and counts on the host the metrics
// that its kernels do not know, as the reference does, whenever its copies are done.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/backend/cudnn_host_machine.h"
#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/cudnn/program.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

using cudnn::HostMachine;

constexpr char kPixels[] =
    "layers { input { shape: [4, 5, 2] } } layers { conv2d { filters: 6 kernel_size: 3 padding: SAME activation: TANH "
    "} "
    "} layers { conv2d { filters: 3 kernel_size: 1 activation: SOFTMAX } }";

Batch Weighted(const Batch& batch) {
  Batch weighted = batch;
  const size_t labels = batch.labels.floats().size();
  weighted.labels = Buffer::Allocate((labels + static_cast<size_t>(batch.examples)) * sizeof(float));
  const absl::Span<float> to = weighted.labels.mutable_floats();
  std::copy(batch.labels.floats().begin(), batch.labels.floats().end(), to.begin());
  for (size_t e = 0; e < static_cast<size_t>(batch.examples); ++e) to[labels + e] = 0.25f + static_cast<float>(e);
  return weighted;
}

TEST(CudnnLoss, WeightsIgnoredPositionsAndMetricsAreThoseOfTheReference) {
  const auto graph = std::make_shared<const Graph>(Graph::Build(FromText<v1::Model>(kPixels)).value());
  for (const char* text :
       {"kind: SPARSE_CATEGORICAL_CROSSENTROPY ignore_class: 1", "kind: SPARSE_CATEGORICAL_CROSSENTROPY",
        "kind: CATEGORICAL_FOCAL_CROSSENTROPY", "kind: MEAN_SQUARED_ERROR", "kind: DICE axis: [1, 2, 3]"}) {
    for (const bool counted : {false, true}) {
      for (const auto copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate}) {
        SCOPED_TRACE(testing::Message() << text << (counted ? ", with AUC" : ""));
        ProgramOptions options;
        options.batch_max = 5;
        options.loss = FromText<v1::Loss>(text);
        options.metrics = {FromText<v1::Metric>("kind: ACCURACY")};
        if (counted) {
          options.metrics.push_back(FromText<v1::Metric>("kind: AUC num_thresholds: 7"));
          options.metrics.push_back(FromText<v1::Metric>("kind: MEAN_IOU num_classes: 3"));
        }
        auto reference = MakeReferenceBackend()->Compile(graph, options).value();
        const cudnn::Precision precision = cudnn::PrecisionOf(options).value();
        auto program = cudnn::MakeProgram(graph, options, precision, std::make_unique<HostMachine>(precision, copies));
        ASSERT_TRUE(program.ok()) << program.status();
        const std::vector<float> values = CaseValues(*graph, 5);
        const Batch plain = CaseBatch(*graph, options.loss, 4, 7);
        for (const Batch& batch : {plain, Weighted(plain)}) {
          for (int again = 0; again < 2; ++again) {  // then what was recorded
            std::vector<float> want(values.size()), got(values.size(), NAN);
            const auto expected = reference->TrainStep(batch, {}, values, absl::MakeSpan(want), nullptr);
            const auto actual = (*program)->TrainStep(batch, {}, values, absl::MakeSpan(got), nullptr);
            ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
            EXPECT_NEAR(actual->loss, expected->loss, 1e-5 * (1 + std::abs(expected->loss)));
            ASSERT_EQ(actual->metrics.size(), expected->metrics.size());
            for (size_t m = 0; m < expected->metrics.size(); ++m)
              EXPECT_NEAR(actual->metrics[m], expected->metrics[m], 1e-6) << m;
            for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << i;
          }
          const auto expected = reference->Evaluate(batch, values), actual = (*program)->Evaluate(batch, values);
          ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
          EXPECT_NEAR(actual->loss, expected->loss, 1e-5 * (1 + std::abs(expected->loss)));
          for (size_t m = 0; m < expected->metrics.size(); ++m)
            EXPECT_NEAR(actual->metrics[m], expected->metrics[m], 1e-6) << m;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cairn
