// TFRecord files: any bytes, and any records in frames whose checksums are right, with any choice of encoding, label
// offset and shape.
//
//   input := encoding:u8 (7: texts) offset:u8 shape:u8 (0 none, else so many numbers)
//            framed:u8 (0: Rest is the file; else Block(record)*)
#include "common/base/crc32c.h"
#include "tests/fuzz/dataset_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const cairn::FuzzFolder folder;
  cairn::ByteSource in(data, size);
  cairn::v1::Data spec;
  const size_t encoding = in.Below(8);
  if (encoding == 7) {
    spec.add_inputs()->set_text(true);
  } else {
    spec.mutable_tfrecord()->set_encoding(static_cast<cairn::v1::TfRecord::Encoding>(encoding));
  }
  spec.mutable_tfrecord()->set_label_offset(static_cast<int32_t>(in.Below(3)) - 1);
  cairn::Shape shape;
  if (const size_t numbers = in.Below(16); numbers > 0) shape = {static_cast<int64_t>(numbers)};
  std::string file;
  if (in.Below(4) == 0) {
    file = std::string(in.Rest());
  } else {
    while (!in.empty()) cairn::AppendRecord(in.Block(), &file);
  }
  spec.set_cache_mib(1);
  spec.set_path(folder / "data.tfrecord");
  folder.Write("data.tfrecord", file);
  cairn::ReadAll(spec, shape);
  return 0;
}
