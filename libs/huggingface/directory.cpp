#include "huggingface/directory.hpp"

#include "base/crc32c.hpp"
#include "base/json.hpp"
#include "base/sha256.hpp"
#include "base/slice.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "base/whole_file.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Says whether a name is plain: a directory must not name other files.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

const SafetensorsEntry& entry_of(const std::string& tensor, const SafetensorsFile& file,
                                 const fs::path& index) {
  try {
    return file.entry(tensor);
  } catch (const Error& error) {
    throw_error(ErrorCode::bad_input, index.string(), " does not fit its files: ", error.what());
  }
}

const JsonObject& weight_map(const JsonValue& root, const fs::path& index) {
  const JsonValue* const map = root.is_object() ? root.find("weight_map") : nullptr;
  if (!map || !map->is_object())
    throw_error(ErrorCode::bad_input, index.string(),
                " has no table 'weight_map' that says which file each tensor is in");
  return map->as_object();
}

}  // namespace

ForeignDirectory::ForeignDirectory(fs::path folder) : folder_(std::move(folder)) {
  const fs::path one = folder_ / weights_name, index = folder_ / weights_index_name;
  if (is_there(index)) {
    read_index(index);
    return;
  }
  if (!is_there(one))
    throw_error(
        ErrorCode::not_found, folder_.string(), " has neither ", weights_name, " nor ", weights_index_name,
        is_there(folder_ / "pytorch_model.bin") || is_there(folder_ / "pytorch_model.bin.index.json")
            ? "; weights in pytorch_model.bin may run code when they are read: save them as safetensors"
            : "");
  const SafetensorsFile& file = files_.emplace_back(one);
  for (const SafetensorsEntry& entry : file.entries()) tensors_[entry.name] = {&file, &entry};
}

ForeignDirectory::ForeignDirectory(fs::path folder, std::string_view file) : folder_(std::move(folder)) {
  if (!is_there(folder_ / file)) throw_error(ErrorCode::not_found, folder_.string(), " has no ", file);
  const SafetensorsFile& only = files_.emplace_back(folder_ / file);
  for (const SafetensorsEntry& entry : only.entries()) tensors_[entry.name] = {&only, &entry};
}

void ForeignDirectory::read_index(const fs::path& index) {
  const JsonValue root = parse_json(whole_file(index, JsonLimits{}.bytes), index.string());
  std::map<std::string, const SafetensorsFile*> opened;
  for (const JsonMember& member : weight_map(root, index).members()) {
    if (!member.value.is_string())
      throw_error(ErrorCode::bad_input, index.string(), ": 'weight_map' has no name of a file for tensor ",
                  in_quotes(member.name));
    const std::string& name = member.value.as_string();
    if (!is_plain_name(name))
      throw_error(ErrorCode::bad_input, index.string(), ": tensor ", in_quotes(member.name),
                  " is said to be in ", in_quotes(name), ", which is no name of a file in this folder");
    const SafetensorsFile*& file = opened[name];
    if (!file && !is_there(folder_ / name))
      throw_error(ErrorCode::not_found, folder_.string(), " has no ", in_quotes(name), ", which ",
                  weights_index_name, " names for tensor ", in_quotes(member.name));
    if (!file) file = &files_.emplace_back(folder_ / name);
    tensors_[member.name] = {file, &entry_of(member.name, *file, index)};
  }
}

const ForeignDirectory::Tensor* ForeignDirectory::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

// Computes a checksum for each tensor, in pieces so that threads share them and pages are freed.
std::string ForeignDirectory::content(std::size_t threads) const {
  constexpr std::uint64_t most = std::uint64_t{64} << 20;
  struct Piece {
    const Tensor* tensor;
    std::uint64_t begin, end;
    std::uint32_t checksum = 0;
  };
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : tensors_)
    for (std::uint64_t at = 0, size = tensor.file->bytes(*tensor.entry).size(); at < size; at += most)
      pieces.push_back({&tensor, at, std::min(at + most, size)});
  share_out(threads, pieces.size(), [&](std::size_t, std::size_t i) {
    Piece& piece = pieces[i];
    const auto bytes = piece.tensor->file->bytes(*piece.tensor->entry);
    piece.checksum = crc32c(bytes.subspan(piece.begin, piece.end - piece.begin));
    piece.tensor->file->let_go(*piece.tensor->entry, piece.begin, piece.end);
  });
  std::string all = digest();
  for (const Piece& piece : pieces) all += crc32c_text(piece.checksum);
  Sha256 sum;
  sum.update(std::as_bytes(std::span(all)));
  return sum.hex();
}

std::string ForeignDirectory::digest() const {
  Sha256 digest;
  for (const auto& [name, tensor] : tensors_) {
    const std::string line =
        detail::concat(name, " ", name_of(tensor.entry->type), shape_text(tensor.entry->shape), " ",
                       tensor.file->path().filename().string(), " ", tensor.entry->begin, "\n");
    digest.update(std::as_bytes(std::span(line)));
  }
  return digest.hex();
}

}  // namespace prun
