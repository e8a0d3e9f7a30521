// Reads the rows of a Parquet file as JSON lines, by Apache Arrow. It is a library by itself that is loaded
// when the first such file is read: Arrow is large, and a build without it differs by this file alone.
#include "parquet/rows.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using arrow::Array;
using arrow::DataType;
using arrow::Type;

void require_ok(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

template <class T>
T take(arrow::Result<T> result) {
  require_ok(result.status());
  return std::move(result).ValueUnsafe();
}

void append_text(std::string& line, std::string_view text) {
  line += '"';
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      line += '\\', line += letter;
    } else if (byte < 0x20) {
      std::array<char, 8> code;
      std::snprintf(code.data(), code.size(), "\\u%04x", byte);
      line += code.data();
    } else {
      line += letter;
    }
  }
  line += '"';
}

template <class Number>
void append_number(std::string& line, Number number) {
  std::array<char, 32> digits;
  line.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

// JSON has neither infinity nor NaN.
void append_real(std::string& line, double number) {
  if (std::isfinite(number))
    append_number(line, number);
  else
    line += "null";
}

template <class Wanted>
const Wanted& as(const Array& array) {
  return static_cast<const Wanted&>(array);
}

bool can_be_written(const DataType& type) {
  switch (type.id()) {
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::STRUCT:
      return std::all_of(type.fields().begin(), type.fields().end(),
                         [](const auto& field) { return can_be_written(*field->type()); });
    case Type::NA:
    case Type::BOOL:
    case Type::INT8:
    case Type::INT16:
    case Type::INT32:
    case Type::INT64:
    case Type::UINT8:
    case Type::UINT16:
    case Type::UINT32:
    case Type::UINT64:
    case Type::FLOAT:
    case Type::DOUBLE:
    case Type::STRING:
    case Type::LARGE_STRING: return true;
    default: return false;
  }
}

void append(std::string& line, const Array& array, std::int64_t row);

template <class List>
void append_list(std::string& line, const Array& array, std::int64_t row) {
  const auto& list = as<List>(array);
  line += '[';
  for (std::int64_t i = 0; i < list.value_length(row); ++i) {
    if (i > 0) line += ", ";
    append(line, *list.values(), list.value_offset(row) + i);
  }
  line += ']';
}

// A member of a name that has no value is left out, as where it was made of JSON.
void append_members(std::string& line, const arrow::FieldVector& fields, const arrow::ArrayVector& columns,
                    std::int64_t row) {
  line += '{';
  bool first = true;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (!can_be_written(*fields[i]->type()) || columns[i]->IsNull(row)) continue;
    if (!first) line += ", ";
    first = false;
    append_text(line, fields[i]->name());
    line += ": ";
    append(line, *columns[i], row);
  }
  line += '}';
}

void append(std::string& line, const Array& array, std::int64_t row) {
  if (array.IsNull(row)) {
    line += "null";
    return;
  }
  switch (array.type_id()) {
    case Type::BOOL: line += as<arrow::BooleanArray>(array).Value(row) ? "true" : "false"; return;
    case Type::INT8: return append_number(line, int{as<arrow::Int8Array>(array).Value(row)});
    case Type::INT16: return append_number(line, as<arrow::Int16Array>(array).Value(row));
    case Type::INT32: return append_number(line, as<arrow::Int32Array>(array).Value(row));
    case Type::INT64: return append_number(line, as<arrow::Int64Array>(array).Value(row));
    case Type::UINT8: return append_number(line, int{as<arrow::UInt8Array>(array).Value(row)});
    case Type::UINT16: return append_number(line, as<arrow::UInt16Array>(array).Value(row));
    case Type::UINT32: return append_number(line, as<arrow::UInt32Array>(array).Value(row));
    case Type::UINT64: return append_number(line, as<arrow::UInt64Array>(array).Value(row));
    case Type::FLOAT: return append_real(line, static_cast<double>(as<arrow::FloatArray>(array).Value(row)));
    case Type::DOUBLE: return append_real(line, as<arrow::DoubleArray>(array).Value(row));
    case Type::STRING: return append_text(line, as<arrow::StringArray>(array).GetView(row));
    case Type::LARGE_STRING: return append_text(line, as<arrow::LargeStringArray>(array).GetView(row));
    case Type::LIST: return append_list<arrow::ListArray>(line, array, row);
    case Type::LARGE_LIST: return append_list<arrow::LargeListArray>(line, array, row);
    case Type::STRUCT: {
      const auto& members = as<arrow::StructArray>(array);
      arrow::ArrayVector columns;
      for (int i = 0; i < members.num_fields(); ++i) columns.push_back(members.field(i));
      return append_members(line, array.type()->fields(), columns, row);
    }
    default: line += "null"; return;
  }
}

class Rows {
 public:
  explicit Rows(const char* path) {
    file_ = take(
        parquet::arrow::OpenFile(take(arrow::io::ReadableFile::Open(path)), arrow::default_memory_pool()));
    file_->set_batch_size(rows_at_a_time);
    batches_ = take(file_->GetRecordBatchReader());
  }

  std::size_t read(char* to, std::size_t count) {
    while (at_ == lines_.size())
      if (!next_batch()) return 0;
    const std::size_t taken = std::min(count, lines_.size() - at_);
    std::copy_n(lines_.data() + at_, taken, to);
    at_ += taken;
    return taken;
  }

 private:
  static constexpr std::int64_t rows_at_a_time = 256;

  bool next_batch() {
    std::shared_ptr<arrow::RecordBatch> batch;
    require_ok(batches_->ReadNext(&batch));
    lines_.clear();
    at_ = 0;
    if (!batch) return false;
    for (std::int64_t row = 0; row < batch->num_rows(); ++row) {
      append_members(lines_, batch->schema()->fields(), batch->columns(), row);
      lines_ += '\n';
    }
    return true;
  }

  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::string lines_;
  std::size_t at_ = 0;
};

template <class Body>
auto guarded(Body&& body, decltype(body()) failed, char* trouble, std::size_t room) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    std::snprintf(trouble, room, "%s", error.what());
  }
  return failed;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* prun_parquet_open_rows(const char* path,
                                                                               char* trouble,
                                                                               std::size_t room) {
  return guarded([&] { return static_cast<void*>(new Rows(path)); }, nullptr, trouble, room);
}

extern "C" __attribute__((visibility("default"))) long prun_parquet_read_rows(void* rows, char* to,
                                                                              std::size_t count,
                                                                              char* trouble,
                                                                              std::size_t room) {
  return guarded([&] { return static_cast<long>(static_cast<Rows*>(rows)->read(to, count)); }, -1L, trouble,
                 room);
}

extern "C" __attribute__((visibility("default"))) void prun_parquet_close_rows(void* rows) {
  delete static_cast<Rows*>(rows);
}
