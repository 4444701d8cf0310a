// The CIFAR-10 loader: a file of records, gzip or not, and the file of class names.
//
//   input := Block(class names; empty: no such file) Rest(every batch)
#include "tests/fuzz/dataset_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const cairn::FuzzFolder folder;
  cairn::ByteSource in(data, size);
  const std::string_view names = in.Block();
  if (names.empty()) {
    folder.Remove("batches.meta.txt");
  } else {
    folder.Write("batches.meta.txt", names);
  }
  const std::string_view batch = in.Rest();
  for (int i = 1; i <= 5; ++i) folder.Write("data_batch_" + std::to_string(i) + ".bin", batch);
  cairn::v1::Data spec;
  spec.set_path(folder.path());
  spec.set_format(cairn::v1::Data::CIFAR10);
  cairn::ReadAll(spec, {});
  return 0;
}
