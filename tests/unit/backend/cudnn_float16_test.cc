// Goal: compute_dtype FLOAT16 on a GPU. With a loss scale, gradients that are too small for float16 are there, at their
// true size; with one that is too large they are not finite. The loss and moving averages are not scaled.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/unit/backend/beside_reference.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/cudnn/program.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

TEST(CudnnFloat16Test, LossScale) {
  const LayerCase layer{"normalized", R"(layers { input { shape: [6] } } layers { name: "d1" dense { units: 5 } }
      layers { name: "bn" batch_normalization {} } layers { name: "d2" dense { units: 3 activation: SOFTMAX } })"};
  const std::shared_ptr<const Graph> graph = CaseGraph(layer);
  ProgramOptions options;
  options.batch_max = 9;
  options.loss = FromText<v1::Loss>(layer.loss);
  for (int i = 0; i < 3; ++i) {
    v1::ClassWeight& weight = options.class_weights.emplace_back();
    weight.set_class_id(i);
    weight.set_weight(1e-7f);
  }
  const Batch batch = CaseBatch(*graph, options.loss, 9, 7);
  const std::vector<float> values = CaseValues(*graph, 5);
  std::vector<float> expected(graph->space_size());
  const std::unique_ptr<Program> reference = MakeReferenceBackend()->Compile(graph, options).value();
  ASSERT_TRUE(reference->TrainStep(batch, {}, values, absl::MakeSpan(expected), nullptr).ok());
  options.compute = v1::FLOAT16;
  const cudnn::Precision precision = cudnn::PrecisionOf(options).value();
  const std::unique_ptr<Program> program =
      cudnn::MakeProgram(graph, options, precision,
                         std::make_unique<cudnn::HostMachine>(precision, cudnn::HostMachine::Copies::kLate))
          .value();
  const auto train = [&](float loss_scale, double* loss) {
    std::vector<float> gradient(graph->space_size());
    *loss =
        program->TrainStep(batch, {.loss_scale = loss_scale}, values, absl::MakeSpan(gradient), nullptr).value().loss;
    return gradient;
  };
  const Variable& kernel = graph->variables().front();
  ASSERT_EQ(kernel.name, "d1/kernel");
  const auto of = [](const Variable& v, const std::vector<float>& space) {
    return absl::MakeConstSpan(space).subspan(v.offset, v.size);
  };
  double loss_1 = 0, loss_2 = 0, loss_3 = 0;
  const std::vector<float> small = train(1, &loss_1), scaled = train(1 << 15, &loss_2), huge = train(1e30f, &loss_3);
  EXPECT_GT(Distance(of(kernel, small), of(kernel, expected)), 0.2 * Norm(of(kernel, expected)))
      << "nothing was lost without a scale";
  EXPECT_LE(Distance(of(kernel, scaled), of(kernel, expected)), 2e-2 * Norm(of(kernel, expected)));
  EXPECT_FALSE(std::isfinite(Norm(of(kernel, huge))));
  EXPECT_EQ(loss_1, loss_2);
  EXPECT_EQ(loss_1, loss_3);
  int averages = 0;
  for (const Variable& v : graph->variables()) {
    if (v.kind != VariableKind::kMovingAverage) continue;
    ++averages;
    EXPECT_EQ(Distance(of(v, small), of(v, scaled)), 0) << v.name;
    EXPECT_EQ(Distance(of(v, small), of(v, huge)), 0) << v.name;
    EXPECT_LE(Distance(of(v, small), of(v, expected)), 1e-2 * Norm(of(v, expected))) << v.name;
  }
  EXPECT_EQ(averages, 2);
}

}  // namespace
}  // namespace cairn
