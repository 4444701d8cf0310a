// The CSV loader: any text with any choice of label column and header.
//
//   input := header:u8 (0 told from the file, 1 yes, 2 no) Block(label_column) Rest(file)
#include "tests/fuzz/dataset_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const cairn::FuzzFolder folder;
  cairn::ByteSource in(data, size);
  cairn::v1::Data spec;
  if (const size_t header = in.Below(3); header != 0) spec.set_header(header == 1);
  spec.set_label_column(std::string(in.Block()));
  spec.set_format(cairn::v1::Data::CSV);
  spec.set_validation_split(0.25f);
  spec.set_path(folder / "data.csv");
  folder.Write("data.csv", in.Rest());
  cairn::ReadAll(spec, {});
  return 0;
}
