// SPDX-License-Identifier: Apache-2.0
// Plugin kind `comm`: moves bytes between the ranks of a group. It computes nothing but reductions and
// decides nothing: the plan says which ranks run which operations, and in which order.
//
// One communicator belongs to one queue of the plan: only the thread that submits to that queue calls start()
// and finish(). Every member of a group starts the same operations in the same order.
//
// Collective setup is done before the first step, by all members in the same order: create(), then, once the
// plan's memory is allocated, attach_memory() and connect(). Each returns when its result can be used: a
// plugin whose library sets up asynchronously waits for it there.
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
  // Number of this plugin's groups in which a rank communicates: the largest number of any rank, so that all
  // ranks get the same.
  std::int32_t groups = 1;
  // A plugin that splits gets its communicator of all ranks here (null while that one is created) and, as
  // `color`, the number of this group among those split from it by the same call; a rank in none of them gets
  // color -1 and rank -1.
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
  // For a plugin that enqueues: number of pieces of work from start() that a rank can have in flight over all
  // communicators, including those that wait for a peer; 0: any number. On a rank with more communicators
  // than that, each piece begins only once the piece started before it, on any communicator, has begun.
  std::int64_t resident = 0;
  // Host memory that the plugin itself takes: once for the process, and for each communicator in addition to
  // what its operations need.
  std::int64_t process_bytes = 0;
  std::int64_t communicator_bytes = 0;
  // Device memory that it takes, which counts toward the plan's memory.
  std::int64_t process_device_bytes = 0;
  std::int64_t communicator_device_bytes = 0;
  // Resources that the system limits: threads of the process and, for each communicator, open files and
  // memory that a host shares (/dev/shm).
  std::int64_t threads = 0;
  std::int64_t communicator_descriptors = 0;
  std::int64_t communicator_shared_bytes = 0;
};

// States what an operation needs on a member.
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
  // Gives the communicator the memory of the plan that operations will use, once for each program of a run;
  // if operations are staged, this is host memory. It is collective; members may give different sizes.
  // abort() interrupts it.
  virtual void attach_memory(Communicator, void* /*base*/, std::int64_t /*bytes*/) {}
  // Takes this memory back before any of it is released. This is local; nothing started may be pending,
  // unless it was aborted.
  virtual void detach_memory(Communicator) {}
  // Announces what start() will be given: one operation of each kind, type, size and peer. It is collective,
  // once for each program of a run, and creates all connections, plans and buffers, so that no operation
  // creates one later. A plugin that enqueues may overwrite the operations' memory. `stream` is as for
  // start(). abort() interrupts it.
  virtual void connect(Communicator, const CommOp* /*ops*/, std::int64_t /*count*/, void* /*stream*/) {}
  // Announces one list of operations that start() will be given repeatedly, at this address, so that it can
  // be prepared once. It is collective and comes after connect(), in the order of the first step. abort()
  // interrupts it.
  virtual void prepare(Communicator, const CommOp* /*ops*/, std::int64_t /*count*/, void* /*stream*/) {}
  // Begins these operations. Operations of one call may run concurrently, and so may those of later calls if
  // they do not touch the same memory. It neither allocates nor locks once every kind and size has been seen.
  // `stream` is the queue's, for devices that have one; a plugin that enqueues gets all operations of a piece
  // of work at once.
  virtual void start(Communicator communicator, const CommOp* ops, std::int64_t count, void* stream) = 0;
  // Blocks the calling thread until everything started is done; it does not spin for long but sleeps. It
  // throws comm_failed when a peer is gone or the communicator was aborted.
  virtual void finish(Communicator communicator) = 0;
  // Makes start() and finish() of this communicator fail soon, now and later, and what was enqueued as well.
  // Any thread may call it.
  virtual void abort(Communicator communicator) = 0;
  virtual CommCounters counters(Communicator communicator) = 0;
  // Throws the error of an enqueued operation, if there was one. Any thread may call it; only plugins that
  // enqueue need it.
  virtual void check(Communicator) {}
  // Returns the needs of member `rank` of a group of that size. It reads the kind, type, count and peer of
  // `op`, and whether in and out are the same.
  virtual CommNeeds needs(const CommOp& op, std::int32_t rank, std::int32_t size) = 0;
  // Returns findings as Device::examine() does, with how each communicator reaches its members.
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
