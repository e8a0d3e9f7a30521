#include "nvme/store.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/crc32c.hpp"
#include "base/thread.hpp"
#include "prun/error.hpp"

namespace prun::nvme {
namespace {

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }
std::int64_t block_of(std::int64_t address) { return address / block * block; }

struct alignas(block) Block {
  std::array<std::byte, static_cast<std::size_t>(block)> bytes{};
};

}  // namespace

Store::Store(Settings settings, std::int64_t bytes, MakeRing make_ring)
    : settings_(std::move(settings)), bytes_(round_up(bytes, block)), make_ring_(std::move(make_ring)) {
  PRUN_CHECK(!settings_.folders.empty() && settings_.stripe > 0 && settings_.stripe % block == 0,
             settings_.folders.size(), " folders, stripes of ", settings_.stripe);
  files_.resize(settings_.folders.size());
  share_out(files_.size(), files_.size(), [&](std::size_t, std::size_t file) {
    files_[file] =
        std::make_unique<DriveFile>(settings_.folders[file], bytes_of_file(file), settings_.direct);
  });
  if (settings_.checksum)
    for (std::size_t file = 0; file < files_.size(); ++file)
      checksums_.emplace_back(bytes_of_file(file) / block, crc32c(Block{}.bytes));
  idle_.push_back(open_channel());
  opened_ = 1;
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

// A few channels at a time have more under way than one that waits for each of its pieces.
Store::Loan::Loan(Store& store) : store_(store) {
  constexpr std::size_t most = 4;
  std::unique_lock lock(store_.host_);
  store_.returned_.wait(lock, [&] { return !store_.idle_.empty() || store_.opened_ < most; });
  if (store_.idle_.empty()) {
    channel_ = store_.open_channel();
    ++store_.opened_;
  } else {
    channel_ = std::move(store_.idle_.back());
    store_.idle_.pop_back();
  }
}

Store::Loan::~Loan() {
  const std::scoped_lock lock(store_.host_);
  store_.idle_.push_back(std::move(channel_));
  store_.returned_.notify_one();
}

void Store::Loan::move(bool write, std::int64_t address, std::byte* memory, std::int64_t bytes) {
  const MovedPiece piece{address, memory, bytes};
  channel_->move(write, {&piece, 1}, Memory::may_go);
}

void Store::read(std::int64_t address, std::span<std::byte> to) {
  Loan loan(*this);
  const std::int64_t ahead = round_up(address, block) - address;
  if (const auto count = std::min<std::size_t>(to.size(), static_cast<std::size_t>(ahead)); count > 0) {
    look(loan, address, to.first(count));
    address += static_cast<std::int64_t>(count);
    to = to.subspan(count);
  }
  const std::int64_t whole = block_of(static_cast<std::int64_t>(to.size()));
  if (whole > 0) loan.move(false, address, to.data(), whole);
  if (const auto rest = to.subspan(static_cast<std::size_t>(whole)); !rest.empty())
    look(loan, address + whole, rest);
}

void Store::write(std::int64_t address, std::span<const std::byte> from) {
  Loan loan(*this);
  const std::int64_t ahead = round_up(address, block) - address;
  if (const auto count = std::min<std::size_t>(from.size(), static_cast<std::size_t>(ahead)); count > 0) {
    patch(loan, address, from.first(count));
    address += static_cast<std::int64_t>(count);
    from = from.subspan(count);
  }
  const std::int64_t whole = block_of(static_cast<std::int64_t>(from.size()));
  if (whole > 0) loan.move(true, address, const_cast<std::byte*>(from.data()), whole);
  if (const auto rest = from.subspan(static_cast<std::size_t>(whole)); !rest.empty())
    patch(loan, address + whole, rest);
}

// Reads bytes within one block, whose rest another thread may write meanwhile.
void Store::look(Loan& loan, std::int64_t address, std::span<std::byte> to) {
  const std::scoped_lock lock(edges_);
  Block whole;
  const std::int64_t begin = block_of(address);
  loan.move(false, begin, whole.bytes.data(), block);
  std::memcpy(to.data(), whole.bytes.data() + (address - begin), to.size());
}

void Store::patch(Loan& loan, std::int64_t address, std::span<const std::byte> from) {
  const std::scoped_lock lock(edges_);
  Block whole;
  const std::int64_t begin = block_of(address);
  loan.move(false, begin, whole.bytes.data(), block);
  std::memcpy(whole.bytes.data() + (address - begin), from.data(), from.size());
  loan.move(true, begin, whole.bytes.data(), block);
}

void Store::clear(std::int64_t address, std::int64_t bytes) {
  if (!written_) return;
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
