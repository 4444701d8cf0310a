// Lowers a graph for the machine of tests (cudnn_host_machine.h).
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/unit/backend/cudnn_host_machine.h"
#include "tests/unit/backend/cudnn_lacks.h"
#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

inline LoweringOptions OptionsOf(const Graph& graph, const std::string& loss, int64_t examples, Mode mode,
                                 DType type = DType::kFloat32) {
  LoweringOptions options;
  options.examples = examples;
  options.mode = mode;
  options.precision.type = type;
  options.loss = FromText<v1::Loss>(loss);
  options.loss_plan = PlanLoss(graph, options.loss);
  options.label_size = CaseBatch(graph, options.loss, 1, 1).label_size;
  return options;
}

inline std::unique_ptr<Plan> Lower(const Graph& graph, const LoweringOptions& options) {
  HostMachine machine(options.precision);
  auto plan = LowerGraph(graph, options, machine);
  EXPECT_TRUE(plan.ok() || IsCudnnLack(plan.status())) << plan.status();
  return plan.ok() ? *std::move(plan) : nullptr;
}

}  // namespace cairn::cudnn
