#include "nvme/store.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <thread>

#include "base/crc32c.hpp"
#include "prun/error.hpp"

namespace prun::nvme {
namespace {

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }
std::int64_t block_of(std::int64_t address) { return address / block * block; }

struct alignas(block) Block {
  std::array<std::byte, static_cast<std::size_t>(block)> bytes{};
};

// A drive each.
template <class Body>
void beside_each_other(std::size_t count, Body&& body) {
  std::vector<std::exception_ptr> failed(count);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (...) {
        failed[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : failed)
    if (one) std::rethrow_exception(one);
}

}  // namespace

Store::Store(Settings settings, std::int64_t bytes, MakeRing make_ring)
    : settings_(std::move(settings)), bytes_(round_up(bytes, block)), make_ring_(std::move(make_ring)) {
  PRUN_CHECK(!settings_.folders.empty() && settings_.stripe > 0 && settings_.stripe % block == 0,
             settings_.folders.size(), " folders, stripes of ", settings_.stripe);
  files_.resize(settings_.folders.size());
  beside_each_other(files_.size(), [&](std::size_t file) {
    files_[file] =
        std::make_unique<DriveFile>(settings_.folders[file], bytes_of_file(file), settings_.direct);
  });
  if (settings_.checksum)
    for (std::size_t file = 0; file < files_.size(); ++file)
      checksums_.emplace_back(bytes_of_file(file) / block, crc32c(Block{}.bytes));
  channel_ = open_channel();
}

std::int64_t Store::bytes_of_file(std::size_t file) const {
  const auto files = static_cast<std::int64_t>(settings_.folders.size()),
             at = static_cast<std::int64_t>(file);
  const std::int64_t whole = bytes_ / settings_.stripe, rest = bytes_ % settings_.stripe;
  return (whole / files + (at < whole % files ? 1 : 0)) * settings_.stripe + (at == whole % files ? rest : 0);
}

Stretch Store::stretch_at(std::int64_t address) const {
  const auto files = static_cast<std::int64_t>(files_.size());
  const std::int64_t stripe = address / settings_.stripe, inside = address % settings_.stripe;
  return {static_cast<std::size_t>(stripe % files), stripe / files * settings_.stripe + inside,
          settings_.stripe - inside};
}

std::unique_ptr<Channel> Store::open_channel() {
  std::vector<int> descriptors;
  for (const auto& file : files_) descriptors.push_back(file->descriptor());
  return std::make_unique<Channel>(*this, make_ring_(descriptors, settings_.depth * files_.size()));
}

// ---------------------------------------------------------------- any bytes

void Store::read(std::int64_t address, std::span<std::byte> to) {
  const std::scoped_lock lock(host_);
  const std::int64_t ahead = address - block_of(address);
  if (ahead > 0 && !to.empty()) {
    Block first;
    const MovedPiece piece{address - ahead, first.bytes.data(), block};
    channel_->move(false, {&piece, 1});
    const auto count = std::min<std::size_t>(to.size(), static_cast<std::size_t>(block - ahead));
    std::memcpy(to.data(), first.bytes.data() + ahead, count);
    address += static_cast<std::int64_t>(count);
    to = to.subspan(count);
  }
  const MovedPiece piece{address, to.data(), static_cast<std::int64_t>(to.size())};
  if (!to.empty()) channel_->move(false, {&piece, 1});
}

void Store::write(std::int64_t address, std::span<const std::byte> from) {
  const std::scoped_lock lock(host_);
  const std::int64_t ahead = round_up(address, block) - address;
  if (const auto count = std::min<std::size_t>(from.size(), static_cast<std::size_t>(ahead)); count > 0) {
    patch(address, from.first(count));
    address += static_cast<std::int64_t>(count);
    from = from.subspan(count);
  }
  const auto whole = static_cast<std::size_t>(block_of(static_cast<std::int64_t>(from.size())));
  const MovedPiece piece{address, const_cast<std::byte*>(from.data()), static_cast<std::int64_t>(whole)};
  if (whole > 0) channel_->move(true, {&piece, 1});
  if (from.size() > whole) patch(address + static_cast<std::int64_t>(whole), from.subspan(whole));
}

// Bytes within one block, of which the rest stays.
void Store::patch(std::int64_t address, std::span<const std::byte> from) {
  Block whole;
  const MovedPiece piece{block_of(address), whole.bytes.data(), block};
  channel_->move(false, {&piece, 1});
  std::memcpy(whole.bytes.data() + (address - piece.address), from.data(), from.size());
  channel_->move(true, {&piece, 1});
}

void Store::clear(std::int64_t address, std::int64_t bytes) {
  const std::vector<std::byte> zeros(static_cast<std::size_t>(std::min(bytes, settings_.stripe)));
  for (std::int64_t at = 0; at < bytes;) {
    const auto count = static_cast<std::size_t>(std::min(bytes - at, settings_.stripe));
    write(address + at, std::span(zeros).first(count));
    at += static_cast<std::int64_t>(count);
  }
}

// ---------------------------------------------------------------- checksums

void Store::note_checksums(std::size_t file, std::int64_t offset, std::span<const std::byte> bytes) {
  if (checksums_.empty()) return;
  auto* sum = &checksums_[file][static_cast<std::size_t>(offset / block)];
  for (; !bytes.empty(); bytes = bytes.subspan(static_cast<std::size_t>(block)))
    *sum++ = crc32c(bytes.first(static_cast<std::size_t>(block)));
}

std::optional<std::int64_t> Store::damaged_block(std::size_t file, std::int64_t offset,
                                                 std::span<const std::byte> bytes) const {
  if (checksums_.empty()) return {};
  for (; !bytes.empty(); bytes = bytes.subspan(static_cast<std::size_t>(block)), offset += block)
    if (crc32c(bytes.first(static_cast<std::size_t>(block))) !=
        checksums_[file][static_cast<std::size_t>(offset / block)])
      return offset;
  return {};
}

}  // namespace prun::nvme
