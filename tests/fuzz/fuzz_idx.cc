// The IDX loader: images and labels of one split, plain or packed with gzip.
//
//   input := Block(labels) Rest(images)
#include "tests/fuzz/dataset_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const cairn::FuzzFolder folder;
  cairn::ByteSource in(data, size);
  folder.Write("train-labels-idx1-ubyte", in.Block());
  folder.Write("train-images-idx3-ubyte", in.Rest());
  cairn::v1::Data spec;
  spec.set_path(folder.path());
  spec.set_format(cairn::v1::Data::IDX);
  cairn::ReadAll(spec, {});
  return 0;
}
