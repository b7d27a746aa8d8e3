/// @file
/// Success, failure, and a value or a failure.
#ifndef SEQLAB_STATUS_H_
#define SEQLAB_STATUS_H_

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace seqlab {

/// Kinds of failure, to branch on.
enum class StatusCode {
  kOk,               ///< no failure
  kInvalidArgument,  ///< an argument is wrong, or a file cannot be read
  kNotFound,         ///< there is no bundle, or no onnxruntime
  kDamagedBundle,    ///< the bundle is not as it was written, or its files do not fit each other
  kUnsupported,      ///< this onnxruntime, machine or runtime cannot do it
  kCancelled,        ///< a callback returned false
  kOutOfMemory,      ///< there is not enough memory
  kInternal,         ///< onnxruntime or the system failed, a callback threw, or a token's logits are not finite
  kUnavailable,      ///< an engine's queue is full, or the engine accepts no more requests
};

/// Success, or a failure with its message, which is one sentence.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Makes a failure; its code is not `kOk`.
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }     ///< Returns true on success.
  StatusCode code() const { return code_; }                ///< Returns the kind of failure, `kOk` on success.
  const std::string& message() const { return message_; }  ///< Returns the message, empty on success.

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

/// A value, or the failure that left none.
template <typename T>
class [[nodiscard]] Result {
 public:
  /// Makes a success.
  Result(T value) : content_(std::move(value)) {}
  /// Makes a failure; of a status that is a success it is kInternal.
  Result(Status status) : content_(std::move(status)) {
    if (this->status().ok()) content_ = Status(StatusCode::kInternal, "a Result has neither a value nor an error");
  }

  /// Returns true if there is a value.
  bool ok() const { return std::holds_alternative<T>(content_); }
  /// Returns the failure, or a success if there is a value.
  Status status() const { return ok() ? Status() : *std::get_if<Status>(&content_); }

  /// @{
  /// Returns the value. Without one, prints the failure's message to stderr and aborts the process: ask ok() first.
  T& value() { return const_cast<T&>(std::as_const(*this).value()); }
  const T& value() const {
    if (!ok()) {
      std::fprintf(stderr, "seqlab: a Result without a value was read: %s\n", status().message().c_str());
      std::abort();
    }
    return *std::get_if<T>(&content_);
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  /// @}

 private:
  std::variant<T, Status> content_;
};

}  // namespace seqlab

#endif  // SEQLAB_STATUS_H_
