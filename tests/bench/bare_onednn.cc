#include "tests/bench/bare_onednn.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <random>
#include <unordered_map>
#include <vector>

#include "dnnl.hpp"

namespace cairn::bench {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::prop_kind;
using Tag = memory::format_tag;
using Arguments = std::unordered_map<int, memory>;

memory::desc F32(const memory::dims& dims, Tag tag) { return memory::desc(dims, memory::data_type::f32, tag); }

class BareCnn {
 public:
  explicit BareCnn(int64_t batch) : n_(batch), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    conv1_.Build(*this, F32({n_, 1, 28, 28}, Tag::nchw), 32, false);
    pool1_.Build(*this, conv1_.out);
    conv2_.Build(*this, pool1_.out.get_desc(), 64, true);
    pool2_.Build(*this, conv2_.out);
    BuildDense();
    conv2_.BuildBackward(*this, pool1_.out);
    conv1_.BuildBackward(*this, conv1_.in);
    pool2_.BuildBackward(*this, dense_in_gradient_, conv2_.out_gradient);
    pool1_.BuildBackward(*this, conv2_.in_gradient, conv1_.out_gradient);
  }

  // inputs: [n, 28, 28]. Returns the mean loss.
  double Step(float* inputs, const int* labels, float rate) {
    conv1_.in.set_data_handle(inputs);
    Run(conv1_.forward);
    Run(pool1_.forward);
    Run(conv2_.forward);
    Run(pool2_.forward);
    Run(dense_forward_);
    const double loss = Loss(labels);
    Run(dense_backward_weights_);
    Run(dense_backward_data_);
    Run(pool2_.backward);
    Run(conv2_.relu_backward);
    Run(conv2_.backward_weights);
    Run(conv2_.weights_reorder);
    Run(conv2_.backward_data);
    Run(pool1_.backward);
    Run(conv1_.relu_backward);
    Run(conv1_.backward_weights);
    stream_.wait();
    conv1_.Update(rate);
    conv2_.Update(rate);
    Descend(dense_weights_, dense_weights_gradient_, rate);
    Descend(dense_bias_, dense_bias_gradient_, rate);
    return loss;
  }

 private:
  struct Job {
    dnnl::primitive primitive;
    Arguments arguments;
  };

  void Run(const Job& job) {
    if (job.primitive) job.primitive.execute(stream_, job.arguments);
  }

  memory New(const memory::desc& desc) { return memory(desc, engine_); }

  memory Random(const memory::desc& desc, double limit) {
    memory m = New(desc);
    std::uniform_real_distribution<float> uniform(-static_cast<float>(limit), static_cast<float>(limit));
    float* x = Data(m);
    for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) x[i] = uniform(random_);
    return m;
  }

  static float* Data(const memory& m) { return static_cast<float*>(m.get_data_handle()); }

  static void Descend(const memory& weights, const memory& gradient, float rate) {
    float* w = Data(weights);
    const float* g = Data(gradient);
    const size_t count = weights.get_desc().get_size() / sizeof(float);
    for (size_t i = 0; i < count; ++i) w[i] -= rate * g[i];
  }

  // 3x3, same, relu.
  struct Convolution {
    void Build(BareCnn& net, const memory::desc& src, int64_t filters, bool data_gradient) {
      const memory::dims d = src.dims();
      wants_data = data_gradient;
      source = src;
      dst = F32({d[0], filters, d[2], d[3]}, Tag::any);
      any_weights = F32({filters, d[1], 3, 3}, Tag::any);
      bias_desc = F32({filters}, Tag::x);
      dnnl::post_ops relu;
      relu.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
      dnnl::primitive_attr attributes;
      attributes.set_post_ops(relu);
      pd = dnnl::convolution_forward::primitive_desc(
          {prop_kind::forward_training, algorithm::convolution_direct, src, any_weights, bias_desc, dst, one, one, one},
          attributes, net.engine_);
      in = memory(src, net.engine_, DNNL_MEMORY_NONE);
      weights = net.Random(pd.weights_desc(), std::sqrt(6.0 / (9 * (d[1] + filters))));
      bias = net.Random(bias_desc, 0);
      out = net.New(pd.dst_desc());
      forward = {dnnl::convolution_forward(pd),
                 {{DNNL_ARG_SRC, data_gradient ? net.pool1_.out : in},
                  {DNNL_ARG_WEIGHTS, weights},
                  {DNNL_ARG_BIAS, bias},
                  {DNNL_ARG_DST, out}}};
    }

    void BuildBackward(BareCnn& net, const memory& src) {
      out_gradient = net.New(out.get_desc());
      const dnnl::eltwise_forward::primitive_desc relu(
          {prop_kind::forward_training, algorithm::eltwise_relu, out.get_desc(), 0}, net.engine_);
      const dnnl::eltwise_backward::primitive_desc relu_pd({algorithm::eltwise_relu, out.get_desc(), out.get_desc(), 0},
                                                           net.engine_, relu);
      relu_backward = {dnnl::eltwise_backward(relu_pd),
                       {{DNNL_ARG_SRC, out}, {DNNL_ARG_DIFF_DST, out_gradient}, {DNNL_ARG_DIFF_SRC, out_gradient}}};
      // The gradient has the layout of the weights: the update is one loop over both.
      const dnnl::convolution_backward_weights::primitive_desc weights_pd(
          {algorithm::convolution_direct, source, weights.get_desc(), bias_desc, out.get_desc(), one, one, one},
          net.engine_, pd);
      weights_gradient = net.New(weights.get_desc());
      bias_gradient = net.New(bias_desc);
      backward_weights = {dnnl::convolution_backward_weights(weights_pd),
                          {{DNNL_ARG_SRC, src},
                           {DNNL_ARG_DIFF_DST, out_gradient},
                           {DNNL_ARG_DIFF_WEIGHTS, weights_gradient},
                           {DNNL_ARG_DIFF_BIAS, bias_gradient}}};
      if (!wants_data) return;
      const dnnl::convolution_backward_data::primitive_desc data_pd(
          {algorithm::convolution_direct, source, any_weights, out.get_desc(), one, one, one}, net.engine_, pd);
      memory reordered = net.New(data_pd.weights_desc());
      weights_reorder = {dnnl::reorder(weights, reordered), {{DNNL_ARG_FROM, weights}, {DNNL_ARG_TO, reordered}}};
      in_gradient = net.New(source);
      backward_data = {
          dnnl::convolution_backward_data(data_pd),
          {{DNNL_ARG_DIFF_DST, out_gradient}, {DNNL_ARG_WEIGHTS, reordered}, {DNNL_ARG_DIFF_SRC, in_gradient}}};
    }

    void Update(float rate) const {
      Descend(weights, weights_gradient, rate);
      Descend(bias, bias_gradient, rate);
    }

    const memory::dims one{1, 1};
    bool wants_data = false;
    memory::desc source, dst, any_weights, bias_desc;
    dnnl::convolution_forward::primitive_desc pd;
    memory in, out, weights, bias, weights_gradient, bias_gradient, out_gradient, in_gradient;
    Job forward, relu_backward, backward_weights, weights_reorder, backward_data;
  };

  // 2x2, strides 2.
  struct Pooling {
    void Build(BareCnn& net, const memory& in) {
      const memory::dims d = in.get_desc().dims();
      const memory::desc dst = F32({d[0], d[1], d[2] / 2, d[3] / 2}, Tag::any);
      pd = dnnl::pooling_forward::primitive_desc(
          {prop_kind::forward_training, algorithm::pooling_max, in.get_desc(), dst, two, two, zero, zero}, net.engine_);
      out = net.New(pd.dst_desc());
      workspace = net.New(pd.workspace_desc());
      forward = {dnnl::pooling_forward(pd), {{DNNL_ARG_SRC, in}, {DNNL_ARG_DST, out}, {DNNL_ARG_WORKSPACE, workspace}}};
    }

    void BuildBackward(BareCnn& net, const memory& out_gradient, const memory& in_gradient) {
      const dnnl::pooling_backward::primitive_desc backward_pd(
          {algorithm::pooling_max, in_gradient.get_desc(), out_gradient.get_desc(), two, two, zero, zero}, net.engine_,
          pd);
      backward = {
          dnnl::pooling_backward(backward_pd),
          {{DNNL_ARG_DIFF_DST, out_gradient}, {DNNL_ARG_DIFF_SRC, in_gradient}, {DNNL_ARG_WORKSPACE, workspace}}};
    }

    const memory::dims two{2, 2}, zero{0, 0};
    dnnl::pooling_forward::primitive_desc pd;
    memory out, workspace;
    Job forward, backward;
  };

  void BuildDense() {
    const memory::desc src = pool2_.out.get_desc(), dst = F32({n_, 10}, Tag::nc), bias = F32({10}, Tag::x);
    const memory::desc any = F32({10, 64, 7, 7}, Tag::any);
    const dnnl::inner_product_forward::primitive_desc pd({prop_kind::forward_training, src, any, bias, dst}, engine_);
    const memory::desc weights = pd.weights_desc();
    dense_weights_ = Random(weights, std::sqrt(6.0 / (64 * 7 * 7 + 10)));
    dense_bias_ = Random(bias, 0);
    logits_ = New(dst);
    dense_forward_ = {dnnl::inner_product_forward(pd),
                      {{DNNL_ARG_SRC, pool2_.out},
                       {DNNL_ARG_WEIGHTS, dense_weights_},
                       {DNNL_ARG_BIAS, dense_bias_},
                       {DNNL_ARG_DST, logits_}}};
    logits_gradient_ = New(dst);
    dense_weights_gradient_ = New(weights);
    dense_bias_gradient_ = New(bias);
    const dnnl::inner_product_backward_weights::primitive_desc weights_pd({src, weights, bias, dst}, engine_, pd);
    dense_backward_weights_ = {dnnl::inner_product_backward_weights(weights_pd),
                               {{DNNL_ARG_SRC, pool2_.out},
                                {DNNL_ARG_DIFF_DST, logits_gradient_},
                                {DNNL_ARG_DIFF_WEIGHTS, dense_weights_gradient_},
                                {DNNL_ARG_DIFF_BIAS, dense_bias_gradient_}}};
    dense_in_gradient_ = New(src);
    const dnnl::inner_product_backward_data::primitive_desc data_pd({src, weights, dst}, engine_, pd);
    dense_backward_data_ = {dnnl::inner_product_backward_data(data_pd),
                            {{DNNL_ARG_DIFF_DST, logits_gradient_},
                             {DNNL_ARG_WEIGHTS, dense_weights_},
                             {DNNL_ARG_DIFF_SRC, dense_in_gradient_}}};
  }

  double Loss(const int* labels) {
    const float* x = Data(logits_);
    float* g = Data(logits_gradient_);
    double loss = 0;
    for (int64_t e = 0; e < n_; ++e, x += 10, g += 10) {
      const float max = *std::max_element(x, x + 10);
      float sum = 0;
      for (int i = 0; i < 10; ++i) sum += g[i] = std::exp(x[i] - max);
      for (int i = 0; i < 10; ++i) g[i] = (g[i] / sum - (i == labels[e] ? 1 : 0)) / static_cast<float>(n_);
      loss += std::log(sum) + max - x[labels[e]];
    }
    return loss / static_cast<double>(n_);
  }

  const int64_t n_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::mt19937 random_{1};
  Convolution conv1_, conv2_;
  Pooling pool1_, pool2_;
  memory dense_weights_, dense_bias_, dense_weights_gradient_, dense_bias_gradient_, dense_in_gradient_;
  memory logits_, logits_gradient_;
  Job dense_forward_, dense_backward_weights_, dense_backward_data_;
};

}  // namespace

BareResult RunBareCnn(int64_t batch, double seconds) {
  constexpr int64_t kBatches = 16;
  omp_set_num_threads(1);
  // Noise with a stripe for each class: something to learn.
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> images(kBatches * batch * 784);
  std::vector<int> labels(kBatches * batch);
  for (int64_t e = 0; e < kBatches * batch; ++e) {
    labels[e] = static_cast<int>(random() % 10);
    for (int64_t p = 0; p < 784; ++p)
      images[e * 784 + p] = 0.5f * uniform(random) + (p / 28 / 2 == labels[e] ? 0.5f : 0);
  }
  BareCnn net(batch);
  BareResult result;
  const auto step = [&](int64_t s) {
    const int64_t first = s % kBatches * batch;
    return net.Step(&images[first * 784], &labels[first], 0.05f);
  };
  result.first_loss = step(0);
  for (int64_t s = 1; s < 4; ++s) step(s);
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();
  double elapsed = 0;
  int64_t steps = 0;
  while (elapsed < seconds) {
    for (int i = 0; i < 8; ++i) result.last_loss = step(steps++);
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  const double trained = static_cast<double>(steps * batch);
  result.images_per_second = trained / elapsed;
  result.images_per_cpu_second = trained * CLOCKS_PER_SEC / static_cast<double>(std::clock() - cpu_start);
  return result;
}

}  // namespace cairn::bench
