/* tally: counts words. A CPython extension that keeps to the limited API, so that one build serves every Python since 3.8. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000
#include <Python.h>

static int is_space(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static PyObject *words(PyObject *module, PyObject *text)
{
    char *bytes;
    Py_ssize_t length, count = 0;

    (void)module;
    if (PyBytes_AsStringAndSize(text, &bytes, &length) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < length; i++)
        count += !is_space(bytes[i]) && (i == 0 || is_space(bytes[i - 1]));
    return PyLong_FromSsize_t(count);
}

static PyMethodDef methods[] = {
    {"words", words, METH_O, "How many words these bytes hold."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef tally = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tally",
    .m_doc = "Counts words.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit_tally(void)
{
    return PyModuleDef_Init(&tally);
}
