#include "huggingface/foreign_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/text.hpp"
#include "huggingface/runs.hpp"

namespace prun {
namespace {

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

bool holds(const ForeignPiece& piece, const Extents& index) {
  for (std::size_t d = 0; d < index.size(); ++d)
    if (index[d] < piece.start[d] || index[d] >= piece.start[d] + piece.extent[d]) return false;
  return true;
}

// Holds a piece, opened for one layer.
struct Opened {
  const ForeignPiece* piece;
  const ForeignDirectory::Tensor* tensor;
  std::span<const std::byte> bytes;
  Gather gather;
  std::int64_t size;
  Extents strides;
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
  // Frees pages, which count as the process's while they are mapped in.
  void let_go() const {
    if (first < end)
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
bool have_same_numbers(const ForeignDirectory::Tensor& a, const ForeignDirectory::Tensor& b) {
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

ForeignReader::ForeignReader(const Program& program, const ForeignMap& map, const ForeignDirectory& directory)
    : program_(program), map_(map), directory_(directory) {
  std::set<const SafetensorsEntry*> used;
  for (const Id parameter : program.parameters())
    for (std::int64_t layer = 0;
         map.has(parameter) && layer < program.segment(program.value(parameter).segment).repeat; ++layer)
      for (const ForeignPiece& piece : map.pieces(parameter)) {
        check(piece, layer);
        used.insert(tensor(piece, layer).entry);
      }
  for (const auto& [name, other] : directory.tensors())
    if (!used.contains(other.entry) && !map.ignores(name))
      throw_error(ErrorCode::bad_input, other.file->path().string(), ": tensor ", in_quotes(name),
                  " has no place in the model; check that its config.json is this directory's");
  check_copies();
}

// A tied head, for example, may be stored beside the table. Where it differs, transformers unties it.
void ForeignReader::check_copies() const {
  for (const auto& [copy, original] : map_.copies()) {
    const ForeignDirectory::Tensor *const here = directory_.find(copy), *const there = find(original);
    if (here && there && !have_same_numbers(*here, *there))
      throw_error(ErrorCode::bad_input, here->file->path().string(), ": tensor ", in_quotes(copy),
                  " differs from ", in_quotes(original),
                  ", and the model has one weight for both; untie them in config.json (tie_word_embeddings), "
                  "or remove the tensor");
  }
}

const ForeignDirectory::Tensor* ForeignReader::find(const std::string& name) const {
  for (const std::string& spelling : map_.spellings(name))
    if (const ForeignDirectory::Tensor* const found = directory_.find(spelling)) return found;
  return nullptr;
}

const ForeignDirectory::Tensor& ForeignReader::tensor(const ForeignPiece& piece, std::int64_t layer) const {
  const std::string name = piece.name_of(layer);
  if (const ForeignDirectory::Tensor* const found = find(name)) return *found;
  throw_error(ErrorCode::bad_input, directory_.folder().string(), " has no tensor ", in_quotes(name),
              ", which the model needs");
}

void ForeignReader::check(const ForeignPiece& piece, std::int64_t layer) const {
  const ForeignDirectory::Tensor& found = tensor(piece, layer);
  const auto fail = [&](const auto&... parts) {
    throw_error(ErrorCode::bad_input, found.file->path().string(), ": tensor ", in_quotes(found.entry->name),
                " is ", name_of(found.entry->type), shape_text(found.entry->shape), parts...);
  };
  if (found.entry->shape != piece.shape) fail(", the model makes it ", shape_text(piece.shape));
  if (!gather_of(found.entry->type)) fail("; weights are read in F32, BF16 and F16");
}

DType ForeignReader::type_of(Id parameter, std::int64_t layer) const {
  std::set<SafetensorsType> types;
  for (const ForeignPiece& piece : map_.pieces(parameter)) types.insert(tensor(piece, layer).entry->type);
  // Runs keep fp16 only if they compute in it: fp32 holds all of it.
  const DType common = types.size() == 1 ? to_dtype(*types.begin()).value_or(DType::f32) : DType::f32;
  return common == DType::f16 ? DType::f32 : common;
}

void ForeignReader::read(Id parameter, std::int64_t layer, std::int64_t first, std::span<float> to) const {
  std::vector<Opened> pieces;
  for (const ForeignPiece& piece : map_.pieces(parameter)) {
    const ForeignDirectory::Tensor& found = tensor(piece, layer);
    pieces.push_back({&piece, &found, found.file->bytes(*found.entry), gather_of(found.entry->type),
                      bits_of(found.entry->type) / 8, piece.strides()});
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
      from.gather(from.bytes.data() + offset * from.size, from.strides.back(), part);
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
