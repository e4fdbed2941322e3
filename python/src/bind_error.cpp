// Binds the exception types, and implements the translation of errors in both directions.
#include <array>
#include <new>
#include <type_traits>
#include <typeinfo>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "py_error.hpp"
#include "store/store_error.hpp"

namespace hookline::python {
namespace {

// An exception type. `type` is borrowed from the module, which lives until finalization.
struct ErrorType {
  const char* name;
  const char* doc;
  PyObject** builtin_base;
  bool (*matches)(const Error&);
  std::exception_ptr (*from_python)(const std::string&, std::vector<int>, PyRef);
  PyObject* type = nullptr;
};

template <class E>
bool is_a(const Error& error) {
  if constexpr (std::is_same_v<E, Error>) return true;
  else return dynamic_cast<const E*>(&error) != nullptr;
}

template <class E>
ErrorType error_type(const char* name, const char* doc, PyObject** builtin_base) {
  return {name, doc, builtin_base, [](const Error& e) { return is_a<E>(e); },
          [](const std::string& message, std::vector<int> ranks, PyRef exception) {
            return std::make_exception_ptr(TranslatedError<E>(message, std::move(ranks), std::move(exception)));
          }};
}

// The base class is last, so that a search finds the most derived type.
std::array<ErrorType, 8> types = {
    error_type<InvalidArgument>("InvalidArgument", "An argument is invalid, or the call is not allowed in this state.",
                                &PyExc_ValueError),
    error_type<Unsupported>("Unsupported", "The operation, device or transport is not supported here.",
                            &PyExc_NotImplementedError),
    error_type<Timeout>("Timeout", "An operation did not complete within its timeout.", &PyExc_TimeoutError),
    error_type<PeerLost>("PeerLost", "A peer died or its connection was lost.", &PyExc_RuntimeError),
    error_type<Mismatch>("Mismatch", "The ranks called different operations; no data was changed.",
                         &PyExc_RuntimeError),
    error_type<Aborted>("Aborted", "A rank failed, the group was aborted, or a future was destroyed before completion.",
                        &PyExc_RuntimeError),
    error_type<ResourceError>("ResourceError", "The operating system refused memory, a file or a socket.",
                              &PyExc_OSError),
    error_type<Error>("Error", "The base class of all hookline errors.", nullptr),
};

constexpr const char* kRanksAttribute = "ranks";

// Programs can set the attribute to any object; values other than sequences of ints count as unknown.
std::vector<int> ranks_of(nb::handle exception) {
  std::vector<int> ranks;
  const nb::object value = nb::getattr(exception, kRanksAttribute, nb::none());
  return nb::try_cast(value, ranks) ? ranks : std::vector<int>();
}

nb::object new_exception(nb::handle type, const char* message) {
  return type(nb::steal(PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::char_traits<char>::length(message)),
                                             "backslashreplace")));
}

/// Returns `type`. For a store error, if torch.distributed is imported, returns a class that also derives from
/// PyTorch's error type, so that code for PyTorch catches it.
nb::object with_torch_base(nb::handle type, const Error& error) {
  const auto* const mark = dynamic_cast<const store::DistErrorMark*>(&error);
  if (!mark) return nb::borrow(type);
  const char* const name = mark->dist_error() == store::DistError::store     ? "DistStoreError"
                           : mark->dist_error() == store::DistError::network ? "DistNetworkError"
                                                                             : "QueueEmptyError";
  const nb::dict modules = nb::borrow<nb::dict>(PyImport_GetModuleDict());
  const nb::object module = modules.attr("get")("torch.distributed");
  const nb::object base = module.is_none() ? nb::none() : nb::getattr(module, name, nb::none());
  if (base.is_none()) return nb::borrow(type);
  return nb::module_::import_("hookline._torch_errors").attr("combined_type")(type, base);
}

nb::object exception_of(const Error& error) {
  for (const ErrorType& t : types) {
    if (!t.matches(error)) continue;
    nb::object exception = new_exception(with_torch_base(t.type, error), error.what());
    if (!error.ranks().empty()) exception.attr(kRanksAttribute) = nb::tuple(nb::cast(error.ranks()));
    return exception;
  }
  return new_exception(PyExc_RuntimeError, error.what());
}

// str() of an exception may itself raise, which must not hide the original error.
std::string message_of(nb::handle exception, bool is_hookline_error) {
  try {
    std::string text = nb::str(exception).c_str();
    if (is_hookline_error) return text;
    const std::string type = nb::str(exception.type().attr("__qualname__")).c_str();
    return text.empty() ? type : type + ": " + text;
  } catch (const nb::python_error&) {
    return "a Python exception that cannot be printed";
  }
}

/// Returns the type of nb::value_error() and similar exceptions, which binding code throws.
PyObject* builtin_type(nb::exception_type type) {
  switch (type) {
    case nb::exception_type::stop_iteration: return PyExc_StopIteration;
    case nb::exception_type::index_error: return PyExc_IndexError;
    case nb::exception_type::key_error: return PyExc_KeyError;
    case nb::exception_type::value_error: return PyExc_ValueError;
    case nb::exception_type::type_error: return PyExc_TypeError;
    case nb::exception_type::buffer_error: return PyExc_BufferError;
    case nb::exception_type::import_error: return PyExc_ImportError;
    case nb::exception_type::attribute_error: return PyExc_AttributeError;
    default: return PyExc_RuntimeError;
  }
}

void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    set_python_error(error_to_python(error));
  } catch (const std::bad_cast&) {
    set_python_error(error_to_python(error));
  }
}

}  // namespace

PythonException::~PythonException() = default;

std::exception_ptr error_from_python(PyRef exception, const std::string& prefix) {
  for (const ErrorType& t : types) {
    const bool is_hookline_error = PyErr_GivenExceptionMatches(exception.get().ptr(), t.type);
    if (!is_hookline_error && t.builtin_base) continue;
    const std::string message = prefix + message_of(exception.get(), is_hookline_error);
    std::vector<int> ranks = is_hookline_error ? ranks_of(exception.get()) : std::vector<int>();
    return t.from_python(message, std::move(ranks), std::move(exception));
  }
  return nullptr;  // unreachable: the last type, Error, accepts every exception
}

nb::object error_to_python(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const nb::python_error& e) {
    return nb::borrow(e.value());
  } catch (const PythonException& e) {
    return e.exception().object();
  } catch (const Error& e) {
    nb::object exception = exception_of(e);
    if (e.cause()) PyException_SetCause(exception.ptr(), error_to_python(e.cause()).release().ptr());
    return exception;
  } catch (const nb::builtin_exception& e) {
    return new_exception(builtin_type(e.type()), e.what());
  } catch (const std::bad_cast&) {  // thrown by nb::cast
    return new_exception(PyExc_TypeError, "a value or one of its elements has an unexpected type");
  } catch (const std::bad_alloc& e) {
    return new_exception(PyExc_MemoryError, e.what());
  } catch (const std::exception& e) {
    return new_exception(PyExc_RuntimeError, e.what());
  } catch (...) {
    return new_exception(PyExc_RuntimeError, "C++ exception of unknown type");
  }
}

void set_python_error(nb::handle exception) {
  PyErr_Restore(exception.type().inc_ref().ptr(), exception.inc_ref().ptr(), PyException_GetTraceback(exception.ptr()));
}

void bind_error(nb::module_& m) {
  const std::string module = nb::cast<std::string>(m.attr("__name__"));
  const auto define = [&](ErrorType& t, nb::handle bases) {
    const nb::object type =
        nb::steal(PyErr_NewExceptionWithDoc((module + "." + t.name).c_str(), t.doc, bases.ptr(), nullptr));
    if (!type.is_valid()) throw nb::python_error();
    m.attr(t.name) = type;
    t.type = type.ptr();
  };
  define(types.back(), PyExc_RuntimeError);
  // A class attribute, so that every error has `ranks`.
  nb::handle(types.back().type).attr(kRanksAttribute) = nb::tuple();
  for (ErrorType& t : types) {
    if (t.builtin_base) define(t, nb::make_tuple(nb::handle(types.back().type), nb::handle(*t.builtin_base)));
  }
  nb::register_exception_translator(&translate);
}

}  // namespace hookline::python
