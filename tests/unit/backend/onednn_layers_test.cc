// Goal: every layer, option and loss computes on oneDNN what the reference computes in float64: sums, gradients,
// predictions; in the shapes that take different paths there (channels that fill a vector and that do not, batches of
// 1, 7 and 64, windows that stick out), alone and in models where buffers are shared and layers fused.
#include <gtest/gtest.h>

#include "tests/unit/backend/beside_reference.h"
#include "worker/backend/onednn/onednn_backend.h"

namespace cairn {
namespace {

class OnednnLayersTest : public testing::TestWithParam<LayerCase> {};

TEST_P(OnednnLayersTest, AsTheReference) {
  BesideReference beside(GetParam(), 64);
  beside.Make([](std::shared_ptr<const Graph> graph, const ProgramOptions& options) {
    return MakeOnednnBackend()->Compile(std::move(graph), options);
  });
  if (HasFatalFailure()) return;
  for (int64_t examples : {64, 7, 1}) {
    SCOPED_TRACE(testing::Message() << examples << " examples");
    beside.Training(examples, {.share = 0.03});
    beside.Inference(examples, {});
    beside.BytesAsFloats(examples);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OnednnLayersTest, testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cairn
