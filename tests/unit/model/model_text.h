// Models and jobs of the tests, as users write them: text protobuf.
#pragma once

#include <string>

#include "cairn/v1/job.pb.h"
#include "common/base/check.h"
#include "google/protobuf/text_format.h"

namespace cairn {

template <typename Message>
Message FromText(const std::string& text) {
  Message message;
  CAIRN_CHECK(google::protobuf::TextFormat::ParseFromString(text, &message), "the test's own text: " + text);
  return message;
}

// The job with `change` merged over it.
inline v1::JobSpec ChangedJob(const std::string& job, const std::string& change) {
  v1::JobSpec spec = FromText<v1::JobSpec>(job);
  spec.MergeFrom(FromText<v1::JobSpec>(change));
  return spec;
}

// keras.io's "Simple MNIST convnet".
inline std::string MnistConvnet() {
  return R"(
    layers { input { shape: [28, 28, 1] } }
    layers { rescaling { scale: 0.00392157 } }
    layers { conv2d { filters: 32 kernel_size: 3 activation: RELU } }
    layers { max_pooling2d {} }
    layers { conv2d { filters: 64 kernel_size: 3 activation: RELU } }
    layers { max_pooling2d {} }
    layers { flatten {} }
    layers { dropout { rate: 0.5 } }
    layers { dense { units: 10 activation: SOFTMAX } })";
}

}  // namespace cairn
