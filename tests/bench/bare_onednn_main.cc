// bare_onednn [--batch 64] [--seconds 3]: prints "IMAGES_PER_SECOND images/s, loss FIRST -> LAST".
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/bench/bare_onednn.h"

int main(int argc, char** argv) {
  CLI::App app("The small CNN trained by a bare loop of oneDNN primitives on one thread.");
  int64_t batch = 64;
  double seconds = 3;
  app.add_option("--batch", batch, "examples a step")->check(CLI::Range(1, 4096));
  app.add_option("--seconds", seconds, "how long")->check(CLI::Range(0.1, 600.0));
  CLI11_PARSE(app, argc, argv);
  const cairn::bench::BareResult result = cairn::bench::RunBareCnn(batch, seconds);
  std::printf("%.0f images/s, loss %.3f -> %.3f\n", result.images_per_second, result.first_loss, result.last_loss);
}
