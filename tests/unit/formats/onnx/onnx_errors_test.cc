// Goal: a file that Cairn cannot read is refused with the node, tensor or input that is at fault and what to do; bytes
// of any kind never do more than that.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/formats/onnx/onnx_export.h"
#include "tests/unit/formats/onnx/onnx_cases.h"
#include "tests/unit/formats/onnx/small_model.h"

namespace cairn {
namespace {

using onnx::AttributeProto;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

struct BadFile {
  std::string name;
  std::function<void(ModelProto*)> make;
  std::string error;
};
std::ostream& operator<<(std::ostream& out, const BadFile& bad) { return out << bad.name; }

std::vector<BadFile> BadFiles() {
  return {
      {"NoOpset", [](ModelProto* m) { m->clear_opset_import(); }, "it names no opset; is this an ONNX model?"},
      {"OldOpset", [](ModelProto* m) { m->mutable_opset_import(0)->set_version(6); },
       "opset 6 is not read; export with opset 7 to 25"},
      {"NoGraph", [](ModelProto* m) { m->clear_graph(); }, "it has no graph with operators"},
      {"AnInputTwice", [](ModelProto* m) { m->mutable_graph()->add_input()->set_name("x"); },
       "input \"x\": there are two of it"},
      {"ASecondInputWithoutAShape", [](ModelProto* m) { m->mutable_graph()->add_input()->set_name("mask"); },
       "input \"mask\": its shape is not in the file; export the model with shapes"},
      {"NoInput", [](ModelProto* m) { m->mutable_graph()->clear_input(); }, "it has no input"},
      {"NoOutput", [](ModelProto* m) { m->mutable_graph()->clear_output(); }, "it has no output"},
      {"AnOutputTwice", [](ModelProto* m) { *m->mutable_graph()->add_output() = m->graph().output(0); },
       "output \"fc_out\": there are two of it"},
      {"ASecondOutputOfNobody", [](ModelProto* m) { m->mutable_graph()->add_output()->set_name("z"); },
       "output \"z\" is not an operator's output"},
      {"OutputOfNobody", [](ModelProto* m) { m->mutable_graph()->mutable_output(0)->set_name("y"); },
       "output \"y\" is not an operator's output"},
      {"NoShape", [](ModelProto* m) { m->mutable_graph()->mutable_input(0)->clear_type(); },
       "input \"x\": its shape is not in the file; export the model with shapes"},
      {"DynamicHeight",
       [](ModelProto* m) {
         m->mutable_graph()
             ->mutable_input(0)
             ->mutable_type()
             ->mutable_tensor_type()
             ->mutable_shape()
             ->mutable_dim(2)
             ->set_dim_param("height");
       },
       "input \"x\": its dimension 2 (\"height\") has no fixed size; only the batch, dimension 0, may be of any size"},
      {"NegativeInput",
       [](ModelProto* m) {
         m->mutable_graph()
             ->mutable_input(0)
             ->mutable_type()
             ->mutable_tensor_type()
             ->mutable_shape()
             ->mutable_dim(2)
             ->set_dim_value(-8);
       },
       "input \"x\": its dimension 2 is -8"},
      {"SixDimensions",
       [](ModelProto* m) {
         onnx::TensorShapeProto* const shape =
             m->mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
         for (int i = 0; i < 2; ++i) shape->add_dim()->set_dim_value(2);
       },
       "input \"x\": it has 6 dimensions, batch included; 2 to 5 are read"},
      {"ExternalData", [](ModelProto* m) { Tensor(0, m)->set_data_location(TensorProto::EXTERNAL); },
       "tensor \"w1\": its numbers are in another file; save the model with its weights inside"},
      {"ExternalPath", [](ModelProto* m) { Tensor(0, m)->add_external_data()->set_key("location"); },
       "tensor \"w1\": its numbers are in another file; save the model with its weights inside"},
      {"NegativeDimension", [](ModelProto* m) { Tensor(0, m)->set_dims(2, -3); },
       "tensor \"w1\": its dimension -3 is negative"},
      {"HugeDimensions", [](ModelProto* m) { Tensor(0, m)->set_dims(2, int64_t{1} << 62); },
       "tensor \"w1\": it has more than 68719476736 numbers"},
      {"TooFewNumbers", [](ModelProto* m) { Tensor(1, m)->set_dims(0, 6); },
       "tensor \"b1\": shape [6] needs 6 numbers, the file has 4"},
      {"TooFewBytes",
       [](ModelProto* m) {
         Tensor(1, m)->clear_float_data();
         Tensor(1, m)->set_raw_data("123");
       },
       "tensor \"b1\": shape [4] needs 16 bytes, the file has 3"},
      {"Texts", [](ModelProto* m) { Tensor(1, m)->set_data_type(TensorProto::STRING); },
       "tensor \"b1\": its numbers are of type STRING; floats, doubles, 16-bit floats and whole numbers of 8, 32 and "
       "64 bits are read"},
      {"UnknownType", [](ModelProto* m) { Tensor(1, m)->set_data_type(99); },
       "tensor \"b1\": its numbers are of type 99; floats, doubles, 16-bit floats and whole numbers of 8, 32 and 64 "
       "bits are read"},
      {"TwoOfAName", [](ModelProto* m) { AddTensor("b1", {4}, m); }, "tensor \"b1\": there are two of this name"},
      {"SparseWeights", [](ModelProto* m) { m->mutable_graph()->add_sparse_initializer(); },
       "sparse initializers are not read; save them dense"},
      {"MissingInitializer", [](ModelProto* m) { Find("conv1", m)->set_input(1, "w9"); },
       "node \"conv1\" (Conv): its input \"w9\" is not an initializer, an input or the output of an operator"},
      {"MadeTwice", [](ModelProto* m) { Find("flat", m)->set_output(0, "relu1_out"); },
       "node \"flat\" (Flatten): its output \"relu1_out\" is made elsewhere too"},
      {"Cycle", [](ModelProto* m) { Find("relu1", m)->set_input(0, "flat_out"); },
       "node \"relu1\" (Relu): it depends on its own output, by \"flat_out\""},
      {"OwnDomain", [](ModelProto* m) { Find("relu1", m)->set_domain("com.microsoft"); },
       "node \"relu1\" (Relu): operators of \"com.microsoft\" are not known"},
      {"UnknownOperator", [](ModelProto* m) { Find("relu1", m)->set_op_type("Bernoulli"); },
       "node \"relu1\" (Bernoulli): Cairn has no layer for this operator"},
      {"NodeWithoutName",
       [](ModelProto* m) {
         Find("relu1", m)->set_op_type("Det");
         Find("relu1", m)->clear_name();
       },
       "node \"relu1_out\" (Det): Cairn has no layer for this operator"},
      {"UnknownAttribute", [](ModelProto* m) { SetInt("axis", 1, Find("relu1", m)); },
       "node \"relu1\" (Relu): attribute \"axis\" is not supported; export the model without it"},
      {"AttributeOfAnotherType", [](ModelProto* m) { SetText("strides", "2", Find("conv1", m)); },
       "node \"conv1\" (Conv): attribute \"strides\" is not a list of whole numbers"},
      {"StridesOfZero",
       [](ModelProto* m) {
         SetInts("strides", {0, 1}, Find("conv1", m));
       },
       "node \"conv1\" (Conv): attribute \"strides\": 0 is outside 1 .. 1048576"},
      {"ThreeStrides",
       [](ModelProto* m) {
         SetInts("strides", {1, 1, 1}, Find("conv1", m));
       },
       "node \"conv1\" (Conv): attribute \"strides\" has 3 numbers; 2 are needed"},
      {"NegativePads",
       [](ModelProto* m) {
         SetInts("pads", {0, 0, -1, 0}, Find("conv1", m));
       },
       "node \"conv1\" (Conv): attribute \"pads\": -1 is outside 0 .. 1048576"},
      {"KernelShape",
       [](ModelProto* m) {
         SetInts("kernel_shape", {5, 5}, Find("conv1", m));
       },
       "node \"conv1\" (Conv): kernel_shape is [5,5], its weight [4,3,3,3]"},
      {"Groups", [](ModelProto* m) { SetInt("group", 2, Find("conv1", m)); },
       "node \"conv1\" (Conv): weight [4,3,3,3] and group 2 do not fit an input of 3 channels"},
      {"ComputedWeight", [](ModelProto* m) { Find("fc", m)->set_input(1, "relu1_out"); },
       "node \"fc\" (Gemm): its weight (input 1) is computed; it must be a constant"},
      {"OtherBias", [](ModelProto* m) { Find("conv1", m)->set_input(2, "b2"); },
       "node \"conv1\" (Conv): its bias has 5 numbers; 4 are needed"},
      {"DenseMisfit", [](ModelProto* m) { Find("fc", m)->set_input(1, "w1"); },
       "node \"fc\" (Gemm): weight [4,3,3,3] on an input [144]"},
      // Nothing of this size may be made of a few bytes.
      {"EmptyWeightOfManyOutputs",
       [](ModelProto* m) {
         AddTensor("empty", {0, int64_t{1} << 40}, m);
         AddTensor("one", {1}, m);
         Find("fc", m)->set_input(1, "empty");
         Find("fc", m)->set_input(2, "one");
         Find("fc", m)->mutable_attribute(0)->set_i(0);
       },
       "node \"fc\" (Gemm): weight [0,1099511627776] is empty"},
      {"ManyAxes",
       [](ModelProto* m) {
         TensorProto* shape = m->mutable_graph()->add_initializer();
         shape->set_name("shape");
         shape->set_data_type(TensorProto::INT64);
         shape->add_dims(1000);
         for (int i = 0; i < 1000; ++i) shape->add_int64_data(i == 0 ? -1 : 1);
         Insert("Reshape", {"shape"}, m);
       },
       "node \"new\" (Reshape): a shape of 1000 dimensions; at most 16 are read"},
      {"TransposedA", [](ModelProto* m) { SetInt("transA", 1, Find("fc", m)); },
       "node \"fc\" (Gemm): attribute \"transA\" is 1; Cairn keeps the batch first"},
      {"FlattenOfTheBatch", [](ModelProto* m) { SetInt("axis", 0, Find("flat", m)); },
       "node \"flat\" (Flatten): attribute \"axis\" is 0; Cairn keeps the batch, axis 0, apart from all others"},
      {"MovedBatch",
       [](ModelProto* m) {
         SetInts("perm", {1, 0, 2, 3}, Insert("Transpose", {}, m));
       },
       "node \"flat\" (Flatten): its input 0 has the batch on axis 1; transpose it so that the batch comes first"},
      {"NoPermutation",
       [](ModelProto* m) {
         SetInts("perm", {0, 1, 1, 3}, Insert("Transpose", {}, m));
       },
       "node \"new\" (Transpose): perm [0,1,1,3] is not an order of the 4 axes of its input"},
      {"PoolBeyond",
       [](ModelProto* m) {
         SetInts("kernel_shape", {9, 9}, Insert("MaxPool", {}, m));
       },
       "node \"new\" (MaxPool): pool [9,9] is larger than its input [6,6,4]; use a smaller one, padding: SAME, or "
       "fewer poolings before it"},
      {"CeilMode",
       [](ModelProto* m) {
         NodeProto* pool = Insert("MaxPool", {}, m);
         SetInts("kernel_shape", {3, 3}, pool);
         SetInts("strides", {2, 2}, pool);
         SetInt("ceil_mode", 1, pool);
       },
       "node \"new\" (MaxPool): ceil_mode lets the last window go beyond its input [4,6,6]"},
      {"PadsOfAverages",
       [](ModelProto* m) {
         NodeProto* pool = Insert("AveragePool", {}, m);
         SetInts("kernel_shape", {3, 3}, pool);
         SetInts("pads", {2, 2, 2, 2}, pool);
       },
       "node \"new\" (AveragePool): its pads are not those of TensorFlow's SAME, and zeros in their place would change "
       "what it computes"},
      {"PadMode", [](ModelProto* m) { SetText("mode", "edge", Insert("Pad", {"b1"}, m)); },
       "node \"new\" (Pad): attribute \"mode\" is \"edge\"; Cairn has constant and reflect"},
      {"SoftmaxOfTheBatch", [](ModelProto* m) { SetInt("axis", 0, Insert("Softmax", {}, m)); },
       "node \"new\" (Softmax): it works along the batch, axis 0"},
      {"TrainingBatchNormalization",
       [](ModelProto* m) {
         SetInt("training_mode", 1, Insert("BatchNormalization", {"b1", "b1", "b1", "b1"}, m));
       },
       "node \"new\" (BatchNormalization): attribute \"training_mode\" is 1; export the model for inference"},
      {"ProductOfLayers", [](ModelProto* m) { Insert("MatMul", {"relu1_out"}, m); },
       "node \"new\" (MatMul): a product of two layers' outputs, of which one is [4,6,6]; [rows,size] and "
       "[size,columns] are multiplied, and others within MultiHeadAttention alone, which "
       "is read from files that Cairn wrote"},
      {"SliceWithFewerAxes",
       [](ModelProto* m) {
         Slice({{1, 0}, {3, 9}, {3}}, m);
       },
       "node \"new\" (Slice): its starts, ends, axes and steps have 2, 2, 1 and 2 numbers"},
      {"SliceOfOneAxisTwice",
       [](ModelProto* m) {
         Slice({{1, 2}, {6, 6}, {2, -2}}, m);
       },
       "node \"new\" (Slice): it names axis -2 twice"},
      {"SliceOfNothing",
       [](ModelProto* m) {
         Slice({{-1}, {INT64_MIN}, {3}}, m);
       },
       "node \"new\" (Slice): it leaves nothing of axis 3"},
      {"SliceOfTheBatch",
       [](ModelProto* m) {
         Slice({{1}, {INT64_MAX}, {0}}, m);
       },
       "node \"new\" (Slice): it works along the batch, axis 0"},
      {"SlopesOfOtherShape",
       [](ModelProto* m) {
         AddTensor("slope", {3, 1, 1}, m);
         Insert("PRelu", {"slope"}, m);
       },
       "node \"new\" (PRelu): slope [3,1,1] on an input [4,6,6]; one number for each index of some axes is read"},
      {"SumOfOtherShapes", [](ModelProto* m) { Insert("Add", {"x"}, m); },
       "node \"new\" (Add): its inputs have different shapes, [6,6,4] and [8,8,3]; make them equal, by a 1x1 Conv2D on "
       "one of them, say"},
      {"ResizeByHalves",
       [](ModelProto* m) {
         AddTensor("scales", {4}, m);
         for (int i = 0; i < 4; ++i) Tensor(4, m)->set_float_data(i, i < 2 ? 1 : 1.5f);
         Insert("Resize", {"", "scales"}, m);
       },
       "node \"new\" (Resize): a factor of 1.5; whole ones up to 1024 are read"},
      {"BlocksOfTooManyChannels", [](ModelProto* m) { SetInt("blocksize", 3, Insert("DepthToSpace", {}, m)); },
       "node \"new\" (DepthToSpace): blocksize 3 does not fit its input [4,6,6]; one of [channels,height,width] is "
       "read"},
      {"BlocksOfAnotherMode",
       [](ModelProto* m) {
         NodeProto* blocks = Insert("DepthToSpace", {}, m);
         SetInt("blocksize", 2, blocks);
         SetText("mode", "RCD", blocks);
       },
       "node \"new\" (DepthToSpace): attribute \"mode\" is neither DCR nor CRD"},
      {"BlocksOfPartOfAPicture", [](ModelProto* m) { SetInt("blocksize", 4, Insert("SpaceToDepth", {}, m)); },
       "node \"new\" (SpaceToDepth): blocksize 4 does not fit its input [4,6,6]; one of [channels,height,width] is "
       "read"},
      {"BlocksOfNothing", [](ModelProto* m) { Insert("SpaceToDepth", {}, m); },
       "node \"new\" (SpaceToDepth): blocksize 0 does not fit its input [4,6,6]; one of [channels,height,width] is "
       "read"},
      {"BlocksOfARow",
       [](ModelProto* m) {
         Insert("Flatten", {}, m);
         Find("flat", m)->set_op_type("SpaceToDepth");
         Find("flat", m)->clear_attribute();
         SetInt("blocksize", 2, Find("flat", m));
       },
       "node \"flat\" (SpaceToDepth): blocksize 2 does not fit its input [144]; one of [channels,height,width] is "
       "read"},
      {"MoreThanThereAre",
       [](ModelProto* m) {
         TensorProto* k = m->mutable_graph()->add_initializer();
         k->set_name("k");
         k->set_data_type(TensorProto::INT64);
         k->add_dims(1);
         k->add_int64_data(5);
         SetInt("axis", 1, Insert("TopK", {"k"}, m));
       },
       "node \"new\" (TopK): its K is not one number in 1 .. 4"},
      {"TopKOfTheBatch", [](ModelProto* m) { SetInt("axis", 0, Insert("TopK", {"b1"}, m)); },
       "node \"new\" (TopK): its K are not whole numbers"},
      {"CubicResize",
       [](ModelProto* m) {
         AddTensor("scales", {4}, m);
         SetText("mode", "cubic", Insert("Resize", {"", "scales"}, m));
       },
       "node \"new\" (Resize): mode cubic with coordinates half_pixel (round_prefer_floor); nearest and linear by half "
       "pixels, and nearest by asymmetric "
       "ones rounded down, are read"},
  };
}

class BadOnnxFiles : public testing::TestWithParam<BadFile> {};
INSTANTIATE_TEST_SUITE_P(All, BadOnnxFiles, testing::ValuesIn(BadFiles()),
                         [](const auto& info) { return info.param.name; });

TEST_P(BadOnnxFiles, AreRefusedWithTheReason) {
  ModelProto model = Small();
  ASSERT_TRUE(ImportOnnx(model).ok()) << ImportOnnx(model).status();
  GetParam().make(&model);
  EXPECT_EQ(std::string(ImportOnnx(model).status().message()), GetParam().error);
}

TEST(OnnxBytes, OtherFilesAreNone) {
  EXPECT_EQ(ParseOnnx("not a model").status().message(), "not an ONNX file, or a damaged one");
  EXPECT_EQ(ParseOnnx("").status().message(), "it names no opset; is this an ONNX model?");
}

// Whatever bytes are changed: a model, or an error.
TEST(OnnxBytes, AnythingAlteredIsReadOrRefused) {
  const auto graph = CaseGraph(MoreOnnxCases().back());
  for (const bool own : {true, false}) {
    ModelProto model = own ? ExportOnnx(*graph, CaseValues(*graph, 5), {}).value() : Small();
    const std::string bytes = model.SerializeAsString();
    std::mt19937 random(own ? 1 : 2);
    int read = 0, refused = 0;
    for (int i = 0; i < 3000; ++i) {
      std::string altered = bytes;
      for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
        const size_t at = random() % altered.size();
        switch (random() % 3) {
          case 0: altered[at] = static_cast<char>(random()); break;
          case 1: altered.erase(at, 1 + random() % 8); break;
          default: altered.insert(at, altered.substr(random() % altered.size(), 1 + random() % 16));
        }
        if (altered.empty()) altered.assign(1, 'x');
      }
      ++(ParseOnnx(altered).ok() ? read : refused);
    }
    EXPECT_GT(read, 100);
    EXPECT_GT(refused, 100);
  }
}

}  // namespace
}  // namespace cairn
