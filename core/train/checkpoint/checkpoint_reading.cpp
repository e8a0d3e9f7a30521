#include "train/checkpoint/checkpoint_reading.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/floats.hpp"
#include "base/thread.hpp"
#include "plan/persistent.hpp"
#include "prun/split_master.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/checkpoint/checkpoint_fit.hpp"
#include "train/checkpoint/weights.hpp"

namespace prun {
namespace {

template <class T>
void check_finite(const CheckpointFiles& files, const HeldSlice& held, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    T number;
    std::memcpy(&number, bytes.data() + i * sizeof(T), sizeof(T));
    if (!std::isfinite(static_cast<double>(number)))
      throw_error(ErrorCode::bad_input, files.folder().string(), ": tensor '", held.tensor, "' holds ",
                  static_cast<double>(number), " at element ",
                  whole_index(held.slice, static_cast<std::int64_t>(i)),
                  ", and did when it was saved; go on from an earlier checkpoint");
  }
}

// Reads one half of split floats; the other half has been read.
void split(const CheckpointFiles& files, const HeldSlice& held, const PlanMemory& memory,
           std::span<const std::byte> bytes) {
  std::vector<std::uint16_t> rounded(static_cast<std::size_t>(held.slice.count)), low(rounded.size());
  const std::int64_t offset = held.at * size_of(DType::u16);
  memory.read(held.rounded, held.instance, offset, std::as_writable_bytes(std::span(rounded)));
  for (std::size_t i = 0; i < low.size(); ++i) {
    float number;
    std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
    low[i] = low_half(number);
    if (rounded[i] != rounded_half(number))
      throw_error(ErrorCode::bad_input, files.folder().string(), ": tensor '", held.tensor,
                  "' does not round to its parameters at element ",
                  whole_index(held.slice, static_cast<std::int64_t>(i)),
                  ", as it must for precision.master = \"split\"; take one step with \"fp32\" before");
  }
  memory.write(held.value, held.instance, offset, std::as_bytes(std::span(low)));
}

// Adds up what all ranks had of a state, for the first of those that have it now; the others have zeros.
template <class T>
std::vector<std::byte> sum_of_rows(const CheckpointFiles& files, const HeldSlice& held) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(held.bytes())), row(bytes.size());
  TensorSlice saved = held;
  saved.slice.whole = files.tensor(held.tensor).shape;
  std::vector<double> sums(static_cast<std::size_t>(held.slice.count));
  for (std::int64_t& k = saved.slice.start[0] = 0; k < saved.slice.whole[0] && held.slice.start[0] == 0;
       ++k) {
    files.read(saved, row);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      T number;
      std::memcpy(&number, row.data() + i * sizeof(T), sizeof(T));
      sums[i] += static_cast<double>(number);
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const T number = static_cast<T>(sums[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &number, sizeof(T));
  }
  return bytes;
}

// Returns bytes in the type that memory has; moments may have another one in the file.
std::vector<std::byte> bytes_of(const CheckpointFiles& files, const HeldSlice& held) {
  if (files.tensor(held.tensor).shape != held.slice.whole)
    return held.type == DType::f64   ? sum_of_rows<double>(files, held)
           : held.type == DType::f32 ? sum_of_rows<float>(files, held)
                                     : sum_of_rows<bf16>(files, held);
  TensorSlice saved = held;
  saved.type = files.tensor(held.tensor).type;
  std::vector<std::byte> bytes(static_cast<std::size_t>(saved.bytes()));
  files.read(saved, bytes);
  if (saved.type == held.type) return bytes;
  std::vector<float> numbers(static_cast<std::size_t>(held.slice.count));
  load_floats(saved.type, bytes, numbers);
  bytes.resize(static_cast<std::size_t>(held.bytes()));
  store_floats(held.type, numbers, bytes.data());
  return bytes;
}

void read_slice(const CheckpointFiles& files, const HeldSlice& held, const PlanMemory& memory) {
  const std::vector<std::byte> bytes = bytes_of(files, held);
  if (held.type == DType::f64) check_finite<double>(files, held, bytes);
  if (held.type == DType::f32) check_finite<float>(files, held, bytes);
  if (held.type == DType::bf16) check_finite<bf16>(files, held, bytes);
  if (held.type == DType::f16) check_finite<f16>(files, held, bytes);
  if (held.rounded != none)
    split(files, held, memory, bytes);
  else
    memory.write(held.value, held.instance, held.at * size_of(held.type), bytes);
}

void read_slices(const CheckpointFiles& files, std::span<const HeldSlice> list, const PlanMemory& memory,
                 std::size_t threads) {
  share_out(threads, list.size(), [&](std::size_t, std::size_t i) { read_slice(files, list[i], memory); });
}

// Cuts slices into pieces as long as those with a checksum in a file: the memory that reading takes does not
// grow with the tensors.
std::vector<HeldSlice> in_pieces(const CheckpointFiles& files, const std::vector<HeldSlice>& list) {
  std::vector<HeldSlice> pieces;
  for (const HeldSlice& held : list) {
    const std::int64_t most = checksum_chunk_bytes / size_of(files.tensor(held.tensor).type);
    for (std::int64_t first = 0; first < held.slice.count; first += most) {
      HeldSlice& piece = pieces.emplace_back(held);
      piece.slice.first += first;
      piece.slice.count = std::min(most, held.slice.count - first);
      piece.at += first;
    }
  }
  return pieces;
}

// Returns parameters that the files do not have, and takes their slices from the list: the check that the
// files fit has allowed them.
std::set<Id> take_new(const Assembly& assembly, const CheckpointFiles& files, std::vector<HeldSlice>& list) {
  std::set<Id> taken;
  std::erase_if(list, [&](const HeldSlice& held) {
    const Value& value = assembly.program().value(held.value);
    if (!value.starts_anew.empty() && !has_alike(files, held.tensor, held.type, held.slice.whole)) {
      const bool summed = value.declared && value.on_resize == OnResize::sum &&
                          has_rows(files, held.tensor, held.type, held.slice.whole);
      if (!summed) taken.insert(held.value);
      return !summed;
    }
    if (held.parameter == none || assembly.program().value(held.parameter).added_by.empty()) return false;
    if (files.tensors().contains(held.tensor)) return false;
    taken.insert(held.parameter);
    return true;
  });
  return taken;
}

}  // namespace

void read_all(const Assembly& assembly, const CheckpointFiles& files, const PlanMemory& memory,
              Weights which) {
  std::vector<HeldSlice> held = assembly.held_slices();
  initialize_new(assembly, memory, take_new(assembly, files, held));
  if (which == Weights::averaged)
    for (HeldSlice& slice : held) slice.tensor = weights_of(files, slice.tensor, which);
  std::vector<HeldSlice> list = in_pieces(files, held);
  const auto halves = std::stable_partition(list.begin(), list.end(),
                                            [](const HeldSlice& one) { return one.rounded == none; });
  const auto whole = static_cast<std::size_t>(halves - list.begin());
  const std::size_t threads = host_threads(assembly.device_info(), assembly.mesh().world());
  read_slices(files, std::span(list).first(whole), memory, threads);
  read_slices(files, std::span(list).subspan(whole), memory, threads);
}

}  // namespace prun
