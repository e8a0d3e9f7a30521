// This uses what text/parquet/rows.cpp needs of Arrow.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>

int main(int, char** arguments) {
  auto file = arrow::io::ReadableFile::Open(arguments[0]);
  if (!file.ok()) return 1;
  arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> reader =
      parquet::arrow::OpenFile(*file, arrow::default_memory_pool());
  if (!reader.ok()) return 1;
  arrow::Result<std::unique_ptr<arrow::RecordBatchReader>> batches = (*reader)->GetRecordBatchReader();
  return batches.ok() ? 0 : 1;
}
