#include "execute/staging.hpp"

#include <string>

#include "base/thread.hpp"

namespace prun {
namespace {

StagingSlots slots_of(std::span<const CommOp> ops, std::int64_t members) {
  StagingSlots slots;
  for (const CommOp& op : ops) slots.take(op, members);
  return slots;
}

}  // namespace

Staging::Staging(DeviceInterface& device, std::string_view queue, std::span<const CommOp> ops,
                 std::int64_t members)
    : device_(device),
      members_(members),
      slots_(slots_of(ops, members)),
      memory_(device, slots_.count * slots_.bytes) {
  if (slots_.count > 1)
    copier_ = start_thread("the copies of queue '" + std::string(queue) + "'", [this] { copy_all(); });
}

Staging::~Staging() {
  if (!copier_.joinable()) return;
  chunks_ = nullptr;
  asked_.ticket.publish(++operations_);
  copier_.join();
}

std::vector<CommOp> Staging::operations(std::span<const CommOp> ops) const {
  std::vector<CommOp> all;
  for (const CommOp& op : ops) {
    const StagedChunks chunks(op, members_);
    for (std::int64_t i = 0; i < chunks.count(); ++i) all.push_back(chunks.at(i, slot(i)));
  }
  return all;
}

Status Staging::bring(const StagedChunks& chunks, std::int64_t chunk) const {
  Status status;
  chunks.each_read(chunk, slot(chunk), [&](std::byte* device, std::byte* pinned, std::int64_t bytes) {
    if (status.ok()) status = device_.download(pinned, device, bytes);
  });
  return status;
}

Status Staging::take(const StagedChunks& chunks, std::int64_t chunk) const {
  Status status;
  chunks.each_written(chunk, slot(chunk), [&](std::byte* device, std::byte* pinned, std::int64_t bytes) {
    if (status.ok()) status = device_.upload(device, pinned, bytes);
  });
  return status;
}

// ---------------------------------------------------------------- who exchanges

void Staging::begin(const StagedChunks& chunks) {
  chunks_ = &chunks;
  given_up_ = false;
  asked_.ticket.publish(++operations_);
}

bool Staging::may_travel(std::int64_t chunk) {
  brought_.ticket.await(chunks_before_ + static_cast<std::uint64_t>(chunk) + 1);
  return !given_up_;
}

void Staging::has_travelled(std::int64_t chunk, const Status& status) {
  if (!status.ok()) given_up_ = true;
  travelled_.ticket.publish(chunks_before_ + static_cast<std::uint64_t>(chunk) + 1);
}

Status Staging::end() {
  chunks_before_ += static_cast<std::uint64_t>(chunks_->count());
  travelled_.ticket.publish(chunks_before_);
  done_.ticket.await(operations_);
  return status_;
}

// ---------------------------------------------------------------- who copies

void Staging::copy_all() {
  status_ = device_.make_current();
  for (std::uint64_t operation = 1;; ++operation) {
    asked_.ticket.await(operation);
    if (!chunks_) return;
    copy(*chunks_);
    done_.ticket.publish(operation);
  }
}

// Copies chunks: a slot is free once what was in it is copied back.
void Staging::copy(const StagedChunks& chunks) {
  const std::uint64_t before = brought_.counter.load();
  const auto then = [&](auto&& next) {
    if (status_.ok() && !given_up_) status_ = next();
    if (!status_.ok()) given_up_ = true;
  };
  const auto bring_next = [&](std::int64_t chunk) {
    if (chunk >= chunks.count()) return;
    then([&] { return bring(chunks, chunk); });
    brought_.ticket.publish(before + static_cast<std::uint64_t>(chunk) + 1);
  };
  for (std::int64_t i = 0; i < slots_.count; ++i) bring_next(i);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    travelled_.ticket.await(before + static_cast<std::uint64_t>(i) + 1);
    then([&] { return take(chunks, i); });
    bring_next(i + slots_.count);
  }
}

}  // namespace prun
