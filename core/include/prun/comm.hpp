// SPDX-License-Identifier: Apache-2.0
// Plugin kind `comm`: moves bytes between the ranks of a group. It computes nothing but the sum of a
// reduction and decides nothing: which ranks, which operation, in which order stands in the plan.
//
// One communicator belongs to one queue of the plan: start() and finish() are called by the thread that
// feeds that queue, and by no other. Every member of a group starts the same operations in the same order.
//
// What takes all members is done before the first step, by all of them in the same order: create(), then,
// once the plan's memory stands, attach_memory() and connect(). Each returns when what it made can be used:
// a plugin whose library works behind its back looks after it in there until it is done.
#pragma once

#include "prun/exchange.hpp"
#include "prun/options.hpp"
#include "prun/types.hpp"

namespace prun {

// Describes one operation. Its memory belongs to the device and must stay as it is until finish().
struct CommOp {
  CommKind kind = CommKind::barrier;
  Reduction reduction = Reduction::sum;
  DType dtype = DType::f32;
  std::int32_t peer = -1;  // number of a member within the group
  const void* in = nullptr;
  void* out = nullptr;
  std::int64_t count = 0;  // number of elements, as each kind counts them
};

// Lets members of a group find each other: each member gives `bytes` and gets all contributions in the order
// of the members. The call blocks; all members call it in the same order.
struct ExchangeApi {
  std::uint64_t struct_size;
  void* context;
  Status (*all_gather)(void* context, const void* mine, std::uint64_t bytes, void* all);
};

using Communicator = void*;

struct CommGroup {
  Text name;              // name that messages use: "dp.reduce[0,2]"
  std::int32_t rank = 0;  // rank of this process within the group
  std::int32_t size = 1;
  const ExchangeApi* exchange = nullptr;  // exchange among the members; valid during create() only
  // This counts the plugin's groups with exchanges that a rank is in: it is the largest count of any rank, so
  // that it is the same everywhere.
  std::int32_t groups = 1;
  // A plugin that splits gets its communicator of all ranks here, or null while that one is made, and the
  // number of this group among those made from it by the same call; a rank in none of them gets -1, and rank
  // -1.
  Communicator parent = nullptr;
  std::int32_t color = -1;
};

struct CommInfo {
  Text name;                   // "ucx 1.13: shared memory, tcp"
  bool host_memory = false;    // whether operations may use host memory
  bool device_memory = false;  // whether they may use memory of the queue's device
  // start() only enqueues, on the stream of an asynchronous device's queue; finish() is never called.
  bool enqueues = false;
  // The plugin makes its groups from one communicator of all ranks, which is created first. All ranks then
  // call create() for every name of a group; those that are in no group of that name get null.
  bool splits = false;
  // A rank of a plugin that enqueues can have this many of start()'s pieces under way at a time over all
  // communicators, including those that wait for a peer; 0 means any number. On a rank with more
  // communicators than that, each begins once the one started before it, by any communicator, has begun.
  std::int64_t resident = 0;
  // The plugin itself takes this much host memory: once for the process, and for each communicator beside
  // what its operations need.
  std::int64_t process_bytes = 0;
  std::int64_t communicator_bytes = 0;
  // It takes this much of the device's memory, which counts with the plan's.
  std::int64_t process_device_bytes = 0;
  std::int64_t communicator_device_bytes = 0;
  // The system limits these: threads of the process, files that a communicator has open, and memory that it
  // takes of what a host shares (/dev/shm).
  std::int64_t threads = 0;
  std::int64_t communicator_descriptors = 0;
  std::int64_t communicator_shared_bytes = 0;
};

// States what an operation takes of a member.
struct CommNeeds {
  std::uint64_t bytes_sent = 0;   // payload, as the plugin's counters will count it
  std::int64_t memory_bytes = 0;  // host memory that the plugin takes while the operation is under way
};

// Counts the payload bytes that this rank has sent so far, as the communicator itself counts them.
struct CommCounters {
  std::uint64_t operations = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual CommInfo info() = 0;
  // Creates a communicator; this is collective over the group. On failure every member gets an error or
  // learns of it by the exchange.
  virtual Communicator create(const CommGroup& group) = 0;
  // Ends a communicator. This is local; nothing started may be pending, unless it was aborted.
  virtual void destroy(Communicator communicator) = 0;
  // Gives the communicator the plan's memory that operations will use, once for each program of a run; where
  // operations are staged, that is host memory. It is collective. Members may give different numbers of
  // bytes. abort() ends it.
  virtual void attach_memory(Communicator, void* /*base*/, std::int64_t /*bytes*/) {}
  // Takes that memory back before any of it is released. This is local; nothing started may be pending,
  // unless it was aborted.
  virtual void detach_memory(Communicator) {}
  // Shows what start() will be given: one operation of each kind, type, size and peer. This is collective,
  // once for each program of a run. It makes all connections, plans and buffers needed: no operation makes
  // one later. A plugin that enqueues may overwrite their memory. `stream` is as for start(). abort() ends
  // it.
  virtual void connect(Communicator, const CommOp* /*ops*/, std::int64_t /*count*/, void* /*stream*/) {}
  // Shows one list of operations that start() will be given, again and again, at this address, so that they
  // can be made ready once. This is collective. It comes after connect(), in the order of the first step.
  // abort() ends it.
  virtual void prepare(Communicator, const CommOp* /*ops*/, std::int64_t /*count*/, void* /*stream*/) {}
  // Begins these operations; those of one call may proceed at the same time, and so may those of later calls
  // as far as they do not touch the same memory. It neither allocates nor locks once every kind and size has
  // been seen. `stream` is the queue's, for devices that have one; a plugin that enqueues gets all operations
  // of a piece at once.
  virtual void start(Communicator communicator, const CommOp* ops, std::int64_t count, void* stream) = 0;
  // Blocks the calling thread until everything started is done; it does not spin for long but sleeps. It
  // throws comm_failed when a peer is gone or the communicator was aborted.
  virtual void finish(Communicator communicator) = 0;
  // Makes start() and finish() of this communicator fail soon, now and later, and what was enqueued as well.
  // Any thread may call it.
  virtual void abort(Communicator communicator) = 0;
  virtual CommCounters counters(Communicator communicator) = 0;
  // Throws what has gone wrong with enqueued operations, if anything has. Any thread may call it; only
  // plugins that enqueue need it.
  virtual void check(Communicator) {}
  // Returns the needs of member `rank` of a group of that size. It reads the kind, type, count and peer of
  // `op`, and whether in and out are the same.
  virtual CommNeeds needs(const CommOp& op, std::int32_t rank, std::int32_t size) = 0;
  // Reports as Device::examine() does; of communicators, by the group's name, how each reaches its members.
  virtual std::string examine() { return {}; }
};

class CommInterface {
 public:
  virtual Status info(CommInfo* info) noexcept = 0;
  virtual Status create(const CommGroup& group, Communicator* communicator) noexcept = 0;
  virtual Status destroy(Communicator communicator) noexcept = 0;
  virtual Status attach_memory(Communicator communicator, void* base, std::int64_t bytes) noexcept = 0;
  virtual Status detach_memory(Communicator communicator) noexcept = 0;
  virtual Status connect(Communicator communicator, const CommOp* ops, std::int64_t count,
                         void* stream) noexcept = 0;
  virtual Status prepare(Communicator communicator, const CommOp* ops, std::int64_t count,
                         void* stream) noexcept = 0;
  virtual Status start(Communicator communicator, const CommOp* ops, std::int64_t count,
                       void* stream) noexcept = 0;
  virtual Status finish(Communicator communicator) noexcept = 0;
  virtual Status abort(Communicator communicator) noexcept = 0;
  virtual Status counters(Communicator communicator, CommCounters* counters) noexcept = 0;
  virtual Status check(Communicator communicator) noexcept = 0;
  virtual Status needs(const CommOp& op, std::int32_t rank, std::int32_t size, CommNeeds* needs) noexcept = 0;
  // The text is valid until the next call.
  virtual Status examine(Text* lines) noexcept = 0;

 protected:
  ~CommInterface() = default;
};

template <class Author>
class CommAdapter final : public CommInterface {
 public:
  explicit CommAdapter(const Options& options) : author_(options) {}
  Status info(CommInfo* info) noexcept override {
    return guard([&] { *info = comm().info(); });
  }
  Status create(const CommGroup& group, Communicator* communicator) noexcept override {
    return guard([&] { *communicator = comm().create(group); });
  }
  Status destroy(Communicator communicator) noexcept override {
    return guard([&] { comm().destroy(communicator); });
  }
  Status attach_memory(Communicator communicator, void* base, std::int64_t bytes) noexcept override {
    return guard([&] { comm().attach_memory(communicator, base, bytes); });
  }
  Status detach_memory(Communicator communicator) noexcept override {
    return guard([&] { comm().detach_memory(communicator); });
  }
  Status connect(Communicator communicator, const CommOp* ops, std::int64_t count,
                 void* stream) noexcept override {
    return guard([&] { comm().connect(communicator, ops, count, stream); });
  }
  Status prepare(Communicator communicator, const CommOp* ops, std::int64_t count,
                 void* stream) noexcept override {
    return guard([&] { comm().prepare(communicator, ops, count, stream); });
  }
  Status start(Communicator communicator, const CommOp* ops, std::int64_t count,
               void* stream) noexcept override {
    return guard([&] { comm().start(communicator, ops, count, stream); });
  }
  Status finish(Communicator communicator) noexcept override {
    return guard([&] { comm().finish(communicator); });
  }
  Status abort(Communicator communicator) noexcept override {
    return guard([&] { comm().abort(communicator); });
  }
  Status counters(Communicator communicator, CommCounters* counters) noexcept override {
    return guard([&] { *counters = comm().counters(communicator); });
  }
  Status check(Communicator communicator) noexcept override {
    return guard([&] { comm().check(communicator); });
  }
  Status needs(const CommOp& op, std::int32_t rank, std::int32_t size, CommNeeds* needs) noexcept override {
    return guard([&] { *needs = comm().needs(op, rank, size); });
  }
  Status examine(Text* lines) noexcept override {
    return guard([&] {
      findings_ = comm().examine();
      *lines = findings_;
    });
  }

 private:
  Comm& comm() { return author_; }
  Author author_;
  std::string findings_;
};

}  // namespace prun
