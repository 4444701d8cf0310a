// SoftmaxRowsBackward: its sum is in the order of the columns, and its bits are those of oneDNN's own loop.
#include <gtest/gtest.h>

#include <cstring>
#include <dnnl.hpp>
#include <random>
#include <string_view>
#include <vector>

#include "worker/backend/onednn/kernels.h"

namespace cairn::onednn {
namespace {

using dnnl::memory;

struct Rows {
  Rows(int64_t rows, int64_t columns) : y(rows * columns), dy(y.size()), wanted(y.size()) {
    std::mt19937 random(static_cast<unsigned>(rows + columns));
    std::uniform_real_distribution<float> share(0, 2.0f / static_cast<float>(columns)), gradient(-1, 1);
    for (float& v : y) v = share(random);
    for (float& v : dy) v = gradient(random);
    for (int64_t r = 0; r < rows; ++r) {
      float sum = 0;
      for (int64_t c = 0; c < columns; ++c) sum += dy[r * columns + c] * y[r * columns + c];
      for (int64_t c = 0; c < columns; ++c) {
        wanted[r * columns + c] = y[r * columns + c] * (dy[r * columns + c] - sum);
      }
    }
  }
  std::vector<float> y, dy, wanted;
};

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), wanted.size() * sizeof(float)), 0);
}

TEST(SoftmaxRows, SumInTheOrderOfTheColumns) {
  for (const int64_t columns : {1, 3, 8, 17, 197}) {
    const Rows rows(500, columns);
    std::vector<float> dx(rows.y.size());
    SoftmaxRowsBackward(rows.y.data(), rows.dy.data(), 500, columns, dx.data());
    ExpectSameBits(dx, rows.wanted);
    dx = rows.dy;  // in place
    SoftmaxRowsBackward(rows.y.data(), dx.data(), 500, columns, dx.data());
    ExpectSameBits(dx, rows.wanted);
  }
}

TEST(SoftmaxRows, HaveTheBitsOfOneDnn) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  for (const int64_t columns : {3, 64, 197}) {
    Rows rows(40, columns);
    const memory::desc desc({40, columns}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::softmax_forward::primitive_desc forward({dnnl::prop_kind::forward_training, desc, 1}, engine);
    const dnnl::softmax_backward::primitive_desc backward({desc, desc, 1}, engine, forward);
    if (std::string_view(backward.impl_info_str()) != "ref:any") {
      GTEST_SKIP() << "oneDNN has " << backward.impl_info_str() << " here, which is used";
    }
    std::vector<float> dx(rows.y.size());
    dnnl::softmax_backward(backward).execute(stream, {{DNNL_ARG_DST, memory(desc, engine, rows.y.data())},
                                                      {DNNL_ARG_DIFF_DST, memory(desc, engine, rows.dy.data())},
                                                      {DNNL_ARG_DIFF_SRC, memory(desc, engine, dx.data())}});
    stream.wait();
    ExpectSameBits(dx, rows.wanted);
  }
}

}  // namespace
}  // namespace cairn::onednn
