// Models of a few layers.
#include "common/model/ready_made/layer_writer.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

constexpr float kFromBytes = 1.0f / 255;  // 0..255 to 0..1

}  // namespace

// The model of TensorFlow's quickstart for beginners.
v1::Model MakeMlp(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("mlp", input_shape);
  w.Rescaling(kFromBytes);
  if (input_shape.size() > 1) w.Flatten("flatten");
  w.Dense("dense", 128, v1::RELU);
  w.Dropout("dropout", 0.2f);
  w.Dense("dense_1", classes, v1::SOFTMAX);
  return w.Take();
}

// The model of TensorFlow's MirroredStrategy tutorial with Keras.
v1::Model MakeMnistCnn(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("mnist_cnn", input_shape);
  w.Rescaling(kFromBytes);
  w.Conv2D("conv2d", 32, 3).set_activation(v1::RELU);
  w.MaxPooling2D("max_pooling2d", 2, 2);
  w.Flatten("flatten");
  w.Dense("dense", 64, v1::RELU);
  w.Dense("dense_1", classes, v1::SOFTMAX);
  return w.Take();
}

// LeNet-5 (LeCun et al. 1998) in its usual form: the third convolution sees all feature maps, and the last layer is a
// softmax.
v1::Model MakeLenet(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("lenet", input_shape);
  w.Rescaling(kFromBytes);
  w.Conv2D("conv2d", 6, 5, 1, v1::SAME).set_activation(v1::TANH);
  w.AveragePooling2D("average_pooling2d", 2);
  w.Conv2D("conv2d_1", 16, 5).set_activation(v1::TANH);
  w.AveragePooling2D("average_pooling2d_1", 2);
  w.Flatten("flatten");
  w.Dense("dense", 120, v1::TANH);
  w.Dense("dense_1", 84, v1::TANH);
  w.Dense("dense_2", classes, v1::SOFTMAX);
  return w.Take();
}

// The model of examples/beans.
v1::Model MakeBeansCnn(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("beans_cnn", input_shape);
  w.Rescaling(1.0f / 127.5f, -1);
  constexpr int32_t kFilters[] = {16, 32, 64, 64};
  for (int block = 0; block < 4; ++block) {
    const std::string number = std::to_string(block + 1);
    w.Conv2D("conv" + number, kFilters[block], 3, block == 0 ? 2 : 1, v1::SAME).set_use_bias(false);
    w.BatchNormalization("bn" + number, 1e-3f, 0.9f);
    w.Activation("relu" + number, v1::RELU);
    if (block < 3) w.MaxPooling2D("pool" + number, 2, 2);
  }
  w.GlobalAveragePooling2D("avg_pool");
  w.Dropout("dropout", 0.2f);
  w.Dense("predictions", classes, v1::SOFTMAX);
  return w.Take();
}

// keras.io's "Bidirectional LSTM on IMDB", with one output for each class.
v1::Model MakeLstmText(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("lstm_text", input_shape);
  v1::Embedding& embedding = *w.Append("embedding").mutable_embedding();
  embedding.set_input_dim(20000);
  embedding.set_output_dim(128);
  for (const bool first : {true, false}) {
    v1::LSTM& lstm = *w.Append(w.Numbered("bidirectional")).mutable_bidirectional()->mutable_layer()->mutable_lstm();
    lstm.set_units(64);
    lstm.set_return_sequences(first);
  }
  w.Dense("dense", classes, v1::SOFTMAX);
  return w.Take();
}

}  // namespace cairn
