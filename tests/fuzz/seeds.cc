// fuzz_seeds FOLDER: writes FOLDER/TARGET/* for every target: small valid inputs that the fuzzer starts from, made by
// the code that writes such bytes; and FOLDER/TARGET.dict with the words of a job, and of a Keras model.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include <zlib.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "common/base/crc32c.h"
#include "common/formats/keras_archive.h"
#include "common/formats/onnx/onnx_export.h"
#include "common/formats/safetensors.h"
#include "common/tensor/frame_codec.h"
#include "tests/fuzz/file_seeds.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/job_seed.h"
#include "tests/fuzz/legacy_h5_seed.h"
#include "tests/fuzz/manifest_seed.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/formats/every_layer.h"

namespace cairn {
namespace {

class Seeds {
 public:
  explicit Seeds(std::string folder) : folder_(std::move(folder)) {}
  void Add(const std::string& target, const std::string& bytes) {
    WriteFile(folder_ + "/" + target + "/seed_" + std::to_string(++count_), bytes);
  }
  void Add(const std::string& target, const ByteSink& sink) { Add(target, sink.bytes()); }
  const std::string& folder() const { return folder_; }

 private:
  const std::string folder_;
  int count_ = 0;
};

std::string Message(const Frame& frame) {
  return EncodeFrameHeader(frame) +
         std::string(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
}

Frame Push() {
  Frame f;
  f.kind = v1::ExchangeFrame::PUSH;
  f.request_id = 1;
  f.job = JobId(3);
  f.partition = PartitionId(7);
  f.generation = Generation(5);
  f.replica_count = 2;
  f.sequence = 1;
  f.examples = 4;
  f.learning_rate = 0.5f;
  f.dtype = f.reply_dtype = v1::FLOAT32;
  f.payload = Buffer::Allocate(256);
  std::fill_n(f.payload.mutable_data(), 256, 0x3e);
  f.payload_total = 256;
  return f;
}

void Frames(Seeds& seeds) {
  Frame pull = Push();
  pull.kind = v1::ExchangeFrame::PULL;
  pull.payload = {};
  pull.want_version = 0;
  Frame error = pull;
  error.kind = v1::ExchangeFrame::ERROR;
  error.status = absl::InvalidArgumentError("kind: 9 is not a request");
  Frame clip = pull;
  clip.kind = v1::ExchangeFrame::CLIP;
  clip.want_version.reset();
  clip.scalars = std::string("\0\0\0\0\0\0\xe0\x3f", 8);  // one factor, 0.5
  clip.norms_xxh3 = 0x0123456789abcdef;
  for (const Frame& f : {Push(), pull, error, clip}) {
    seeds.Add("frame", ByteSink().Byte(3).Byte(5).Raw(Message(f)));
    seeds.Add("partition", ByteSink().Byte(0).Byte(3).Block(Message(f)));
  }
  ByteSink chunks;  // header: kind request_id count want; offset total size
  chunks.Byte(1).Raw(std::string("\1\1\0\1", 4)).Byte(0).Byte(8).Byte(4).Raw("abcd");
  chunks.Byte(1).Raw(std::string("\1\1\0\1", 4)).Byte(4).Byte(8).Byte(4).Raw("efgh");
  chunks.Byte(0).Raw(std::string("\3\2\1\0", 4)).Byte(2).Byte(9).Raw("123456789");
  seeds.Add("assembler", chunks);
}

void Datasets(Seeds& seeds) {
  const TempFolder temp;
  WriteIdxDataset(temp / "plain", 4, 0, false);
  WriteIdxDataset(temp / "packed", 4, 0, true);
  for (const std::string& suffix : {std::string("plain/"), std::string("packed/")}) {
    const std::string gz = suffix == "packed/" ? ".gz" : "";
    seeds.Add("idx", ByteSink()
                         .Block(ReadFile(temp / (suffix + "train-labels-idx1-ubyte" + gz)))
                         .Raw(ReadFile(temp / (suffix + "train-images-idx3-ubyte" + gz))));
  }
  const std::string record = std::string(1, '\3') + Bytes(3072);
  WriteGzip(temp / "record.gz", record);
  seeds.Add("cifar10", ByteSink().Block("").Raw(record + record));
  seeds.Add("cifar10", ByteSink().Block("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n").Raw(ReadFile(temp / "record.gz")));
  seeds.Add("csv", ByteSink().Byte(0).Block("-1").Raw("a,b,label\n1,2,x\n3,4.5,y\n\"5\",-6e2,x\r\n7,8,y\n"));
  seeds.Add("csv", ByteSink().Byte(1).Block("label").Raw("label,\"a \"\"b\"\"\",c\n0,1,2\n1,3,4\n2,5,6\n"));
  seeds.Add("csv", ByteSink().Byte(2).Block("0").Raw("0.5,1\n1.5,2\n2.5,3\n3.5,4\n"));

  // tf.train.Examples: field := tag length bytes.
  const auto field = [](int number, const std::string& bytes) {
    return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
  };
  const auto example = [&](const std::string& input, const std::string& input_feature) {
    const std::string label = field(1, "label") + field(2, field(3, field(1, "\x03")));
    return field(1, field(1, field(1, input) + field(2, input_feature)) + field(1, label));
  };
  const std::string bytes = example("image", field(1, field(1, "abcdef")));
  const std::string floats = example("x", field(2, field(1, std::string("\0\0\x80\x3f\0\0\0\x40", 8))));
  const std::string ints = example("x", field(3, field(1, "\x05\xac\x02\x07")));
  seeds.Add("tfrecord", ByteSink().Byte(0).Byte(1).Byte(6).Byte(1).Block(bytes).Block(bytes));
  seeds.Add("tfrecord", ByteSink().Byte(4).Byte(2).Byte(2).Byte(1).Block(floats).Block(floats));
  seeds.Add("tfrecord", ByteSink().Byte(0).Byte(1).Byte(0).Byte(1).Block(ints).Block(ints));
  std::string file;
  AppendRecord(bytes, &file);
  AppendRecord(bytes, &file);
  seeds.Add("tfrecord", ByteSink().Byte(2).Byte(1).Byte(6).Byte(0).Raw(file));
}

void Pictures(Seeds& seeds) {
  const TempFolder temp;
  WriteJpeg(temp / "1", 9, 10, 1, Plain(9, 10, {200}));
  WriteJpeg(temp / "2", 17, 5, 3, Plain(17, 5, {200, 10, 90}));
  WritePng(temp / "3", 3, 4, 1, Plain(3, 4, {7}));
  WritePng(temp / "4", 5, 2, 3, Plain(5, 2, {7, 8, 9}));
  WritePng(temp / "5", 2, 2, 4, Plain(2, 2, {7, 8, 9, 100}));
  for (const char* name : {"1", "2", "3", "4", "5"}) {
    seeds.Add("picture", ByteSink().Byte(name[0]).Byte(5).Byte(6).Raw(ReadFile(temp / name)));
  }
}

void Safetensors(Seeds& seeds) {
  const TempFolder temp;
  const std::vector<float> values(12, 1.5f);
  const std::vector<SafetensorView> tensors = {{"dense/kernel", {3, 4}, values},
                                               {"dense/bias", {}, {values.data(), 1}}};
  CAIRN_CHECK(WriteSafetensors(temp / "t", tensors, {{"step", "7"}}).ok(), "safetensors");
  seeds.Add("safetensors", ReadFile(temp / "t"));
}

void Manifests(Seeds& seeds) {
  for (const bool synchronous : {false, true}) {
    std::string text = EncodeManifest(SmallManifest(synchronous));
    seeds.Add("manifest", ByteSink().Byte(0).Raw(text));
    text.resize(text.rfind(kManifestSeal));
    seeds.Add("manifest", ByteSink().Byte(1).Raw(text).Raw(kManifestEnd));
    seeds.Add("manifest", ByteSink().Byte(2).Byte(synchronous).Byte(0).Byte(6).Byte(9));
  }
}

void WriteDictionary(const std::string& path, const std::set<std::string>& words) {
  std::string dictionary;
  for (const std::string& word : words) dictionary += "\"" + word + "\"\n";
  WriteFile(path, dictionary);
}

void AddJson(Seeds& seeds, const std::string& target, std::string_view before, const std::string& text) {
  seeds.Add(target, ByteSink().Raw(before).Block(text).Byte(0));
  seeds.Add(target, ByteSink().Raw(before).Block(text).Byte(1).Byte(1).Number(1, 2).Byte(0).Byte(5).Byte(3).Raw("abc"));
}

Graph GraphOf(const v1::Model& model) {
  absl::StatusOr<Graph> graph = Graph::Build(model);
  MustBeOk(graph.status());
  return *std::move(graph);
}

// As Keras 2 wrote a model of two branches.
constexpr char kKeras2[] = R"({"class_name": "Functional", "config": {"name": "m", "layers": [
  {"class_name": "InputLayer", "name": "i", "config": {"batch_input_shape": [null, 4], "dtype": "float32", "name": "i"}, "inbound_nodes": []},
  {"class_name": "Dense", "name": "a", "config": {"name": "a", "units": 3, "activation": "relu"}, "inbound_nodes": [[["i", 0, 0, {}]]]},
  {"class_name": "Dense", "name": "b", "config": {"name": "b", "units": 3, "activation": "relu"}, "inbound_nodes": [[["i", 0, 0, {}]]]},
  {"class_name": "Add", "name": "s", "config": {"name": "s"}, "inbound_nodes": [[["a", 0, 0, {}], ["b", 0, 0, {}]]]}],
  "input_layers": [["i", 0, 0]], "output_layers": [["s", 0, 0]]}, "keras_version": "2.12.0", "backend": "tensorflow"})";

// As it is written, and as another program writes it, without the description of the model; a field of each is altered.
void Onnx(Seeds& seeds, const v1::Model& every, const v1::Model& newer) {
  for (const v1::Model& model : {SmallJob(false).model(), every, newer}) {
    const Graph graph = GraphOf(model);
    const std::vector<float> space(static_cast<size_t>(graph.space_size()), 0.5f);
    absl::StatusOr<onnx::ModelProto> exported = ExportOnnx(graph, space, {.model_name = "m"});
    MustBeOk(exported.status());
    for (int own = 1; own >= 0; --own) {
      seeds.Add("onnx", ByteSink().Byte(0).Raw(exported->SerializeAsString()));
      seeds.Add("onnx",
                ByteSink().Byte(6).Number(3, 2).Byte(5).Number(1, 2).Byte(0).Raw(exported->SerializeAsString()));
      exported->clear_metadata_props();
    }
  }
}

void KerasModels(Seeds& seeds) {
  const TempFolder temp;
  v1::Model every, newer;
  CAIRN_CHECK(google::protobuf::TextFormat::ParseFromString(EveryLayer(), &every), "every layer");
  CAIRN_CHECK(google::protobuf::TextFormat::ParseFromString(NewerLayers(), &newer), "newer layers");
  std::set<std::string> words;
  for (const v1::Model& model : {SmallJob(false).model(), every, newer}) {
    const Graph graph = GraphOf(model);
    const std::vector<float> space(static_cast<size_t>(graph.space_size()), 0.5f);
    MustBeOk(WriteKerasArchive(temp / "m.keras", "m", graph, space));
    MustBeOk(WriteKerasWeightsFile(temp / "m.weights.h5", graph, space));
    const std::string config = *ReadKerasArchiveConfig(temp / "m.keras");
    AddJson(seeds, "keras_json", "", config);
    for (size_t at = 0; (at = config.find('"', at)) != std::string::npos; ++at) {
      const size_t end = config.find('"', at + 1);
      words.insert(config.substr(at + 1, end - at - 1));
      at = end;
    }
    seeds.Add("keras_weights", ByteSink().Byte(0).Raw(ReadFile(temp / "m.keras")));
    seeds.Add("keras_weights", ByteSink().Byte(1).Raw(ReadFile(temp / "m.weights.h5")));
    seeds.Add("keras_weights", ByteSink().Byte(2).Raw(LegacyH5(graph, config)));
    AddJson(seeds, "keras_json", "", nlohmann::json(config).dump());  // JSON in JSON
  }
  Onnx(seeds, every, newer);
  AddJson(seeds, "keras_json", "", kKeras2);
  WriteDictionary(seeds.folder() + "/keras_json.dict", words);
  // element_bytes - 1, elements, skipped, filters: none; shuffle and deflate; the three; deflate left out.
  uint8_t numbers[48] = {1, 2, 3, 4, 0, 0, 0, 9}, deflated[100];
  uLongf size = sizeof(deflated);
  CAIRN_CHECK(compress(deflated, &size, numbers, sizeof(numbers)) == Z_OK, "deflate");
  const std::string_view plain(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  const std::string_view small(reinterpret_cast<const char*>(deflated), size);
  seeds.Add("hdf5_chunk", ByteSink().Byte(3).Byte(12).Byte(0).Byte(0).Raw(plain));
  seeds.Add("hdf5_chunk", ByteSink().Byte(3).Byte(12).Byte(0).Byte(2).Byte(0).Byte(1).Raw(small));
  seeds.Add("hdf5_chunk", ByteSink().Byte(3).Byte(12).Byte(0).Byte(3).Byte(0).Byte(1).Byte(2).Raw(small).Number(0, 4));
  seeds.Add("hdf5_chunk", ByteSink().Byte(7).Byte(6).Byte(2).Byte(2).Byte(0).Byte(1).Raw(plain));
}

void TfConfigs(Seeds& seeds) {
  constexpr char kCluster[] =
      R"({"cluster": {"chief": ["c:1"], "worker": ["w0:2222", "[::1]:2"], "ps": {"0": "10.0.0.7:2222", "3": "p:3"}},
                                  "task": {"type": "chief", "index": 0}})";
  AddJson(seeds, "tf_config", std::string(1, '\0'), kCluster);
  AddJson(seeds, "tf_config", std::string(1, '\0'),
          R"({"cluster": {"worker": ["w0:2222", "w1:1"]}, "task": {"type": "worker", "index": "1"}})");
  AddJson(seeds, "tf_config", std::string(1, '\1'),
          R"({"cluster": {"master": ["w0:2222"], "ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})");
  AddJson(seeds, "tf_config", std::string(1, '\0'),
          R"({"cluster": {"chief": ["w0:2222"]}, "task": {"type": "evaluator", "index": 0}})");
}

void S3Replies(Seeds& seeds) {
  seeds.Add("s3_reply", ByteSink().Raw("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://a/\"><Contents>"
                                       "<Key>a%2Fb+c</Key><ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>"
                                       "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
                                       "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>"));
  seeds.Add("s3_reply", ByteSink().Raw("<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"));
  seeds.Add("s3_reply", ByteSink().Raw("a/../b"));
}

void Words(const google::protobuf::Descriptor* type, std::set<std::string>& words) {
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* field = type->field(i);
    if (!words.insert(field->name()).second) continue;
    if (field->message_type() != nullptr) Words(field->message_type(), words);
    for (int v = 0; field->enum_type() != nullptr && v < field->enum_type()->value_count(); ++v) {
      words.insert(field->enum_type()->value(v)->name());
    }
  }
}

void Jobs(Seeds& seeds) {
  for (const bool asynchronous : {false, true}) {
    std::string text;
    google::protobuf::TextFormat::PrintToString(SmallJob(asynchronous), &text);
    ByteSink sink;
    sink.Byte(3)
        .Block("optimizer.adam={}")
        .Block("model.layers[1].dense.units=9")
        .Block("metrics[..]={kind: ACCURACY}");
    seeds.Add("job_text", sink.Byte(0).Raw(text));
    seeds.Add("job_text", ByteSink().Byte(0).Byte(3).Raw("\7\2\1").Raw(text));
  }
  seeds.Add("job_text", ByteSink().Byte(0).Byte(0).Raw(kFullJobText));
  std::set<std::string> words;
  Words(v1::JobSpec::descriptor(), words);
  WriteDictionary(seeds.folder() + "/job_text.dict", words);
}

// A job from submission to its end, with a ps and a worker that obey (operations of fuzz_cluster.cc).
void Clusters(Seeds& seeds) {
  ByteSink run;
  const auto op = [&](std::initializer_list<int> bytes) {
    for (int b : bytes) run.Byte(static_cast<uint8_t>(b));
  };
  op({0, 0, 0, 1});     // ps0 joins: session 1
  op({0, 3, 0, 1});     // worker3 joins: session 2
  op({5, 0, 0, 1, 0});  // submitted
  seeds.Add("cluster", run);
  op({2, 2, 1});              // the worker looks at the data (its first command was Welcome)
  op({4, 1});                 // time passes: the job starts
  op({2, 1, 1, 0, 0, 0, 0});  // the ps hosts
  seeds.Add("cluster", run);
  for (int step = 0; step < 10; ++step) op({2, 2, 1, step, step == 9});
  op({4, 3, 6, 1, 2});  // evaluated
  op({2, 2, 0, 4, 3});
  seeds.Add("cluster", run);
  op({10, 0, 0, 0, 1, 0, 3, 0, 1, 4, 4});  // the coordinator restarts, the nodes come back
  seeds.Add("cluster", run);
  op({11, 1, 4, 4, 0, 0, 1, 2, 4, 2});  // the ps goes, is lost, comes back elsewhere
  seeds.Add("cluster", run);
}

void StoredStates(Seeds& seeds) {
  for (int state = 0; state < 5; ++state) {
    ByteSink run;
    run.Byte(state).Byte(state % 2).Byte(0).Byte(1).Byte(2).Byte(1);
    for (int who = 0; who < 3; ++who) run.Byte(who).Byte(0).Byte(1).Byte(4).Byte(4).Byte(4).Byte(0);
    seeds.Add("stored_state", run.Byte(0).Byte(3).Byte(9).Byte(0).Byte(3).Byte(15));
  }
}

void Partitions(Seeds& seeds) {
  for (int mode = 0; mode < 9; ++mode) {
    ByteSink run;
    run.Byte(mode);
    for (int update = 0; update < 8; ++update) {
      for (int who = 0; who < (mode % 3 == 0 ? 3 : 2); ++who) {
        run.Byte(0).Byte(1).Byte(update).Byte(who).Byte(1).Byte(1);
        if (mode >= 6) run.Byte(1);  // the right loss scale
        run.Byte(0x3e);
      }
      if (update == 5) run.Byte(6).Byte(1);
    }
    seeds.Add("partition", run.Byte(7).Byte(1).Byte(0).Byte(0).Byte(5).Byte(1));
    run.Byte(7).Byte(1).Byte(0).Byte(1).Byte(0).Byte(0).Byte(
        0);  // a primary with one backup, which gets an image and an update
    run.Byte(9).Byte(0).Byte(11).Byte(12).Byte(1).Byte(1).Byte(1);
    run.Byte(0).Byte(1).Byte(1).Byte(mode % 3 == 0 ? 2 : 0).Byte(1).Byte(1).Byte(0x3e).Byte(12).Byte(1).Byte(1).Byte(1);
    seeds.Add("partition", run);
  }
  for (int kind = 0; kind < 7; ++kind) {
    ByteSink run;
    run.Byte(kind % 6).Byte(12).Byte(8);
    for (int key = 0; key < 4; ++key) run.Byte(key * 3).Byte(kind).Byte(2).Byte(0).Byte(1).Byte(5).Byte(1);
    seeds.Add("persistence", run);
  }
  seeds.Add("host_partitions", ByteSink().Byte(0).Byte(3).Byte(4).Byte(1).Byte(80));
  seeds.Add("host_partitions", ByteSink().Byte(1).Byte(2).Byte(1).Byte(6).Byte(5));
  seeds.Add("value_log", ByteSink()
                             .Block("abcdefgh")
                             .Byte(1)
                             .Byte(2)
                             .Byte(1)
                             .Byte(2)
                             .Byte(3)
                             .Byte(1)
                             .Byte(0)
                             .Byte(8)
                             .Byte(1)
                             .Byte(10)
                             .Raw("0123456789")
                             .Byte(0)
                             .Byte(1)
                             .Byte(3)
                             .Raw("xyz"));
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  cairn::Seeds seeds(argv[1]);
  cairn::Frames(seeds);
  cairn::Safetensors(seeds);
  cairn::Datasets(seeds);
  cairn::Pictures(seeds);
  cairn::Manifests(seeds);
  cairn::KerasModels(seeds);
  cairn::TfConfigs(seeds);
  cairn::S3Replies(seeds);
  for (const auto& [target, bytes] : cairn::FileSeeds()) seeds.Add(target, bytes);
  cairn::Jobs(seeds);
  cairn::Clusters(seeds);
  cairn::StoredStates(seeds);
  cairn::Partitions(seeds);
  return 0;
}
