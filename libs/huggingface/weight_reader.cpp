#include "huggingface/weight_reader.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "base/crc32c.hpp"
#include "base/json.hpp"
#include "base/sha256.hpp"
#include "base/slice.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "base/whole_file.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- directory

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

HuggingFaceDirectory::HuggingFaceDirectory(fs::path folder) : folder_(std::move(folder)) {
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

HuggingFaceDirectory::HuggingFaceDirectory(fs::path folder, std::string_view file)
    : folder_(std::move(folder)) {
  if (!is_there(folder_ / file)) throw_error(ErrorCode::not_found, folder_.string(), " has no ", file);
  const SafetensorsFile& only = files_.emplace_back(folder_ / file);
  for (const SafetensorsEntry& entry : only.entries()) tensors_[entry.name] = {&only, &entry};
}

void HuggingFaceDirectory::read_index(const fs::path& index) {
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

const HuggingFaceDirectory::Tensor* HuggingFaceDirectory::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

// Computes a checksum for each tensor, in pieces so that threads share them and pages are freed.
std::string HuggingFaceDirectory::content(std::size_t threads) const {
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

std::string HuggingFaceDirectory::digest() const {
  Sha256 digest;
  for (const auto& [name, tensor] : tensors_) {
    const std::string line =
        detail::concat(name, " ", name_of(tensor.entry->type), shape_text(tensor.entry->shape), " ",
                       tensor.file->path().filename().string(), " ", tensor.entry->begin, "\n");
    digest.update(std::as_bytes(std::span(line)));
  }
  return digest.hex();
}

namespace {

// ------------------------------------------------------------------- weight reader

// `stride` is in elements.
template <class T>
void gather(const std::byte* from, std::int64_t stride, std::span<float> to) {
  for (float& x : to) {
    T element;
    std::memcpy(&element, from, sizeof element);
    x = static_cast<float>(element);
    from += stride * static_cast<std::int64_t>(sizeof element);
  }
}

using Gather = void (*)(const std::byte*, std::int64_t, std::span<float>);

Gather gather_of(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::f32: return gather<float>;
    case SafetensorsType::bf16: return gather<bf16>;
    case SafetensorsType::f16: return gather<f16>;
    default: return nullptr;
  }
}

// Gives elements of a tensor that is there as codes of MXFP4, by their numbers in [n, in, out].
class Mxfp4 {
 public:
  static constexpr std::int64_t block = 32;  // elements, along `in`

  Mxfp4(std::span<const std::byte> codes, std::span<const std::byte> scales, const Extents& shape)
      : codes_(codes), scales_(scales), in_(shape[1]), out_(shape[2]) {}

  void gather(std::int64_t first, std::int64_t stride, std::span<float> to) const {
    for (float& x : to) {
      x = at(first);
      first += stride;
    }
  }
  // Returns the bytes of codes before those of the matrix that this element is in.
  std::int64_t bytes_before(std::int64_t element) const { return element / (in_ * out_) * (in_ * out_ / 2); }
  std::int64_t bytes_of_matrix() const { return in_ * out_ / 2; }

 private:
  // The first of two codes has the low bits. A scale of all ones is no number.
  float at(std::int64_t element) const {
    constexpr float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const std::int64_t out = element % out_, in = element / out_ % in_, matrix = element / out_ / in_;
    const std::int64_t number = (matrix * out_ + out) * (in_ / block) + in / block;
    const auto pair =
        std::to_integer<unsigned>(codes_[static_cast<std::size_t>(number * (block / 2) + in % block / 2)]);
    const unsigned code = in % 2 == 0 ? pair & 15 : pair >> 4;
    const auto scale = std::to_integer<int>(scales_[static_cast<std::size_t>(number)]);
    if (scale == 255) return std::numeric_limits<float>::quiet_NaN();
    const float value = std::ldexp(values[code & 7], scale - 127);
    return code & 8 ? -value : value;
  }

  std::span<const std::byte> codes_, scales_;
  std::int64_t in_, out_;
};

bool holds(const HuggingFacePiece& piece, const Extents& index) {
  for (std::size_t d = 0; d < index.size(); ++d)
    if (index[d] < piece.start[d] || index[d] >= piece.start[d] + piece.extent[d]) return false;
  return true;
}

// Holds a piece, opened for one layer.
struct Opened {
  const HuggingFacePiece* piece;
  const HuggingFaceDirectory::Tensor* tensor;
  std::span<const std::byte> bytes;
  Gather gather;
  std::int64_t size;
  Extents strides;
  std::optional<Mxfp4> codes = {};
  std::int64_t first = INT64_MAX, end = 0;  // range of the elements that were read

  std::int64_t offset(const Extents& index) const {
    std::int64_t at = piece->offset();
    for (std::size_t d = 0; d < index.size(); ++d) at += (index[d] - piece->start[d]) * strides[d];
    return at;
  }
  void note(std::int64_t offset, std::int64_t count) {
    first = std::min(first, offset);
    end = std::max(end, offset + (count - 1) * strides.back() + 1);
  }
  void read(std::int64_t offset, std::span<float> to) const {
    if (codes)
      codes->gather(offset, strides.back(), to);
    else
      gather(bytes.data() + offset * size, strides.back(), to);
  }
  // Frees pages, which count as the process's while they are mapped in.
  void let_go() const {
    if (first < end && codes)
      tensor->file->let_go(
          *tensor->entry, static_cast<std::uint64_t>(codes->bytes_before(first)),
          static_cast<std::uint64_t>(codes->bytes_before(end - 1) + codes->bytes_of_matrix()));
    else if (first < end)
      tensor->file->let_go(*tensor->entry, static_cast<std::uint64_t>(first * size),
                           static_cast<std::uint64_t>(end * size));
  }
};

void check_finite(const Opened& from, std::int64_t first, std::span<const float> numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (!std::isfinite(numbers[i]))
      throw_error(ErrorCode::bad_input, from.tensor->file->path().string(), ": tensor ",
                  in_quotes(from.tensor->entry->name), " holds ", numbers[i], " at element ",
                  first + static_cast<std::int64_t>(i) * from.strides.back());
}

// Frees the pages that it has compared.
bool have_same_numbers(const HuggingFaceDirectory::Tensor& a, const HuggingFaceDirectory::Tensor& b) {
  constexpr std::size_t most = std::size_t{1} << 20;  // elements at a time
  const Gather of_a = gather_of(a.entry->type), of_b = gather_of(b.entry->type);
  if (a.entry->shape != b.entry->shape || !of_a || !of_b) return false;
  const std::span<const std::byte> bytes_of_a = a.file->bytes(*a.entry), bytes_of_b = b.file->bytes(*b.entry);
  const auto size_of_a = static_cast<std::size_t>(bits_of(a.entry->type) / 8),
             size_of_b = static_cast<std::size_t>(bits_of(b.entry->type) / 8);
  std::vector<float> in_a, in_b;
  for (std::size_t at = 0, count = bytes_of_a.size() / size_of_a; at < count; at += most) {
    in_a.resize(std::min(most, count - at));
    in_b.resize(in_a.size());
    of_a(bytes_of_a.data() + at * size_of_a, 1, in_a);
    of_b(bytes_of_b.data() + at * size_of_b, 1, in_b);
    if (in_a != in_b) return false;
    a.file->let_go(*a.entry, at * size_of_a, (at + in_a.size()) * size_of_a);
    b.file->let_go(*b.entry, at * size_of_b, (at + in_b.size()) * size_of_b);
  }
  return true;
}

}  // namespace

HuggingFaceReader::HuggingFaceReader(const Program& program, const HuggingFaceMap& map,
                                     const HuggingFaceDirectory& directory)
    : program_(program), map_(map), directory_(directory) {
  std::set<const SafetensorsEntry*> used;
  for (const Id parameter : program.parameters())
    for (std::int64_t layer = 0;
         map.has(parameter) && layer < program.segment(program.value(parameter).segment).repeat; ++layer)
      for (const HuggingFacePiece& piece : map.pieces(parameter)) {
        check(piece, layer);
        const Source found = source(piece, layer);
        used.insert(found.tensor->entry);
        if (found.scales) used.insert(found.scales->entry);
      }
  for (const auto& [name, other] : directory.tensors())
    if (!used.contains(other.entry) && !map.ignores(name))
      throw_error(ErrorCode::bad_input, other.file->path().string(), ": tensor ", in_quotes(name),
                  " has no place in the model; check that its config.json is this directory's");
  check_copies();
}

// A tied head, for example, may be stored beside the table. Where it differs, transformers unties it.
void HuggingFaceReader::check_copies() const {
  for (const auto& [copy, original] : map_.copies()) {
    const HuggingFaceDirectory::Tensor *const here = directory_.find(copy), *const there = find(original);
    if (here && there && !have_same_numbers(*here, *there))
      throw_error(ErrorCode::bad_input, here->file->path().string(), ": tensor ", in_quotes(copy),
                  " differs from ", in_quotes(original),
                  ", and the model has one weight for both; untie them in config.json (tie_word_embeddings), "
                  "or remove the tensor");
  }
}

const HuggingFaceDirectory::Tensor* HuggingFaceReader::find(const std::string& name) const {
  for (const std::string& spelling : map_.spellings(name))
    if (const HuggingFaceDirectory::Tensor* const found = directory_.find(spelling)) return found;
  return nullptr;
}

HuggingFaceReader::Source HuggingFaceReader::source(const HuggingFacePiece& piece, std::int64_t layer) const {
  const std::string name = piece.name_of(layer);
  if (const HuggingFaceDirectory::Tensor* const found = find(name)) return {found};
  const HuggingFaceDirectory::Tensor *const codes = find(name + "_blocks"), *const scales =
                                                                                find(name + "_scales");
  if (codes && scales) return {codes, scales};
  throw_error(ErrorCode::bad_input, directory_.folder().string(), " has no tensor ", in_quotes(name),
              ", which the model needs");
}

void HuggingFaceReader::check_codes(const HuggingFacePiece& piece, const Source& found) const {
  const Extents& shape = piece.shape;
  const auto is = [](const HuggingFaceDirectory::Tensor& there, const Extents& wanted) {
    return there.entry->type == SafetensorsType::u8 && there.entry->shape == wanted;
  };
  const bool whole = shape.size() == 3 && shape[1] % Mxfp4::block == 0 && piece.row == 0;
  const std::int64_t blocks = whole ? shape[1] / Mxfp4::block : 0;
  if (!whole || !is(*found.tensor, {shape[0], shape[2], blocks, Mxfp4::block / 2}) ||
      !is(*found.scales, {shape[0], shape[2], blocks}))
    throw_error(ErrorCode::bad_input, found.tensor->file->path().string(), ": tensors ",
                in_quotes(found.tensor->entry->name), " and ", in_quotes(found.scales->entry->name), " are ",
                name_of(found.tensor->entry->type), shape_text(found.tensor->entry->shape), " and ",
                name_of(found.scales->entry->type), shape_text(found.scales->entry->shape),
                ", which are no codes of MXFP4 for ", shape_text(shape));
}

void HuggingFaceReader::check(const HuggingFacePiece& piece, std::int64_t layer) const {
  const Source there = source(piece, layer);
  if (there.scales) return check_codes(piece, there);
  const HuggingFaceDirectory::Tensor& found = *there.tensor;
  const auto fail = [&](const auto&... parts) {
    throw_error(ErrorCode::bad_input, found.file->path().string(), ": tensor ", in_quotes(found.entry->name),
                " is ", name_of(found.entry->type), shape_text(found.entry->shape), parts...);
  };
  if (found.entry->shape != piece.shape) fail(", the model makes it ", shape_text(piece.shape));
  if (!gather_of(found.entry->type)) fail("; weights are read in F32, BF16 and F16");
}

DType HuggingFaceReader::type_of(Id parameter, std::int64_t layer) const {
  std::set<SafetensorsType> types;
  for (const HuggingFacePiece& piece : map_.pieces(parameter)) {
    const Source found = source(piece, layer);
    types.insert(found.scales ? SafetensorsType::bf16 : found.tensor->entry->type);
  }
  // Runs keep fp16 only if they compute in it: fp32 holds all of it.
  const DType common = types.size() == 1 ? to_dtype(*types.begin()).value_or(DType::f32) : DType::f32;
  return common == DType::f16 ? DType::f32 : common;
}

void HuggingFaceReader::read(Id parameter, std::int64_t layer, std::int64_t first,
                             std::span<float> to) const {
  std::vector<Opened> pieces;
  for (const HuggingFacePiece& piece : map_.pieces(parameter)) {
    const Source source_of = source(piece, layer);
    const HuggingFaceDirectory::Tensor& found = *source_of.tensor;
    pieces.push_back({&piece, &found, found.file->bytes(*found.entry), gather_of(found.entry->type),
                      bits_of(found.entry->type) / 8, piece.strides()});
    if (const HuggingFaceDirectory::Tensor* const scales = source_of.scales)
      pieces.back().codes.emplace(pieces.back().bytes, scales->file->bytes(*scales->entry), piece.shape);
  }
  Extents box;
  for (const Dim& dim : program_.value(parameter).tensor_dims()) box.push_back(dim.extent);
  float* next = to.data();
  each_run(box, first, static_cast<std::int64_t>(to.size()), [&](Extents index, std::int64_t count) {
    while (count > 0) {
      Opened& from = *std::find_if(pieces.begin(), pieces.end(),
                                   [&](const Opened& one) { return holds(*one.piece, index); });
      const std::int64_t left = from.piece->start.back() + from.piece->extent.back() - index.back(),
                         run = std::min(count, left), offset = from.offset(index);
      const std::span<float> part(next, static_cast<std::size_t>(run));
      from.read(offset, part);
      from.note(offset, run);
      check_finite(from, offset, part);
      next += run;
      count -= run;
      index.back() += run;
    }
  });
  for (const Opened& piece : pieces) piece.let_go();
}

}  // namespace prun
